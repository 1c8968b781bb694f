"""Repeats in the simulator what real processes did, and says whether the same came of it.

A run is the folder that `lockstep run --out` left: its scenario, its records, its interleaving, its result.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep import scenarios
from lockstep.analysis import incomplete
from lockstep.analysis.computations import whole_gradient_seconds
from lockstep.analysis.entries import LIFE, WORDS, Entry
from lockstep.analysis.entries import check as check_log
from lockstep.analysis.folders import INCOMPLETE, settle
from lockstep.analysis.records import checked, of
from lockstep.analysis.result import Result
from lockstep.analysis.saved import UNREADABLE, said
from lockstep.analysis.words import count
from lockstep.executor.devices import computes_on
from lockstep.job.plan import Plan
from lockstep.scenarios import Compute, Scenario, ScenarioError

_UPDATE = ["node", "version", "peer", "staleness", "batches"]
_SUMMED_BY_TWO = 2  # workers: one addition, whose order makes no difference


Progress = Callable[[float], None]


class ReplayDiffers(RuntimeError):
    """The replay did not come to what the real run did. `result`: what it came to."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True)
class Run:
    """A real run, as its folder has it."""

    folder: Path
    plan: Plan
    metrics: dict[str, Any]
    records: pd.DataFrame
    interleaving: pd.DataFrame

    @property
    def scenario(self) -> Scenario:
        """What was run."""
        return self.plan.scenario


def load(folder: str | Path) -> Run:
    """Read a run; raises ScenarioError if it cannot be repeated."""
    folder = Path(folder)
    wanted = "give the --out of a 'lockstep run' that has ended"
    settle(folder)
    for name in ("scenario.yaml", "records.parquet", "interleaving.parquet", "result.json"):
        if not (folder / name).is_file():
            if incomplete.is_one(folder / INCOMPLETE):
                goes_on = f"if it does not go on, 'lockstep run --resume {folder}' ends it"
                raise _refusal(folder, f"no result yet: {incomplete.why(folder / INCOMPLETE)}; {goes_on}")
            raise _refusal(folder, f"there is no {name}; {wanted}")
    try:
        metrics = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        tables = [pd.read_parquet(folder / f"{name}.parquet") for name in ("records", "interleaving")]
        run = Run(folder, Plan.of(scenarios.load(folder / "scenario.yaml", beside=False)), metrics, *tables)
        missing = {*Entry._fields} - {*run.interleaving} | {"event", *_UPDATE} - {*run.records}
        metrics["parameters_sha256"]
        if missing:
            raise KeyError(min(missing))
        check_log(run.interleaving)
        # that the log is of another number is said by the replay
        nodes = max(len(run.plan.roles), int(run.interleaving["node"].max()) + 1)
        run = replace(run, records=checked(run.records, nodes))
        _refuse(run)
    except UNREADABLE as error:
        raise _refusal(folder, f"its files cannot be read ({said(error)}); {wanted}") from None
    return run


def _refuse(run: Run) -> None:
    """Raise ScenarioError for a run whose bits do not follow from its log."""
    scenario, log = run.scenario, run.interleaving
    if not WORDS.issuperset(log["word"]):
        raise _refusal(run.folder, "its log is of an earlier version of lockstep, which wrote other entries")
    if run.plan.owners.in_one_memory:
        problem = f"{scenario.strategy.name} cannot be: its workers race inside the vectors"
        raise _refusal(run.folder, problem)
    devices = sorted({kind.split()[0] for kind in log["kind"][log["word"] == "begin"]} - {"cpu"})
    if devices:
        raise _refusal(run.folder, f"runs on the CPU alone can be, and this one was on {', '.join(devices)}")
    if scenario.cluster.workers > _SUMMED_BY_TWO and (log["word"] == "all_reduce").any():
        problem = "the native all-reduce adds in an order of its own; say another algorithm, such as ring"
        raise _refusal(run.folder, problem)


def _refusal(folder: Path, problem: str) -> ScenarioError:
    return ScenarioError(f"{str(folder)!r} cannot be replayed: {problem}", key="--replay")


def replay(run: Run, progress: Progress | None = None) -> Result:
    """Repeat a run. Raises SimulationError if its log does not fit."""
    from lockstep.simulator.replay import replay
    from lockstep.simulator.replayed_port import Divergence

    try:
        return replay(Plan.of(_with_times(run)), run.interleaving, progress)
    except Divergence as error:
        problem = f"the log does not fit the scenario and this code: {error}"
        raise Divergence(f"{run.folder / 'interleaving.parquet'}: {problem}") from None


def check(run: Run, result: Result) -> None:
    """Raise ReplayDiffers unless the replay is what the real run was."""
    difference = _difference(run, result)
    if difference:
        raise ReplayDiffers(f"the replay is not what the real run was: {difference}", result)


def agreed(result: Result) -> str:
    """What a replay has shown, in a line."""
    end = "nothing was learned"
    if result.parameters is not None:
        end = "the final parameters are the real run's, bit for bit"
    updates = of(result.records, "update", ["node", "version"]).drop_duplicates()
    return f"Replayed {count(len(updates), 'update')} in their order: {end}."


def _with_times(run: Run) -> Scenario:
    """The scenario; where gradients' times were measured, with their median."""
    cluster = run.scenario.cluster
    if cluster.compute != "measured":
        return run.scenario
    seconds = whole_gradient_seconds(run.plan, run.records)
    median = float(seconds.median()) if len(seconds) else 0.0
    time = {"distribution": "constant", "value": f"{median!r} s"}
    cluster = cluster.model_copy(update={"compute": Compute.model_validate({"time": time})})
    return run.scenario.model_copy(update={"cluster": cluster})


def _difference(run: Run, result: Result) -> str:
    """The first thing in which a replay is not the real run; nothing if there is none."""
    there, here = _updates(run, run.records), _updates(run, result.records)
    both = min(len(there), len(here))
    unlike = (there[:both] != here[:both]).any(axis=1).to_numpy()
    if unlike.any():
        first = int(unlike.argmax())
        return f"there it made {_update(there, first)}, here {_update(here, first)}"
    if len(there) != len(here):
        which, longer = ("there", there) if len(there) > len(here) else ("here", here)
        return f"only {which} it made {_update(longer, both)}"
    if result.metrics["parameters_sha256"] == run.metrics["parameters_sha256"]:
        return ""
    return f"the updates are the same, the final parameters are not{_since(run, result)}{_elsewhere(run)}"


def _updates(run: Run, records: pd.DataFrame) -> pd.DataFrame:
    """Those whose records are whole: of a job that began anew, of who writes checkpoints."""
    found = of(records, "update", _UPDATE)
    lives = run.interleaving["peer"][run.interleaving["word"] == LIFE]
    if len(lives) and lives.max() > 0:
        found = found[found["node"].isin(run.plan.savers)]
    return found.sort_values(_UPDATE, ignore_index=True)


def _update(updates: pd.DataFrame, row: int) -> str:
    update = updates.iloc[row]
    return (
        f"update {update['version'] + 1} of rank {update['node']} with {update['batches']} mini-batches "
        f"of rank {update['peer']} at staleness {update['staleness']}"
    )


def _since(run: Run, result: Result) -> str:
    """The first version evaluated that came out differently."""
    there, here = (of(r.records, "evaluation", ["version", "loss", "accuracy"]) for r in (run, result))
    both = there.merge(here, on="version", suffixes=("", "_here")).fillna(-1.0)
    unlike = (both["loss"] != both["loss_here"]) | (both["accuracy"] != both["accuracy_here"])
    return (
        f"; the first to be evaluated differently is version {both['version'][unlike].min()}"
        if unlike.any()
        else ""
    )


def _elsewhere(run: Run) -> str:
    """What computed there, if that is not what computes here: the last bits may depend on it."""
    log = run.interleaving
    there = log["kind"][log["word"] == "begin"].iloc[0]
    here = computes_on("cpu")
    return "" if there == here else f" (there {there}, here {here})"
