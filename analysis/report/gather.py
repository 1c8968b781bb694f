"""What is in a folder of results: one run, several, a sweep, or what `validate` has compared."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.analysis import saved
from lockstep.analysis import table as tables
from lockstep.analysis.report.reproduce import command, is_key
from lockstep.analysis.result import Result
from lockstep.analysis.runs import Runs
from lockstep.scenarios import Scenario, ScenarioError, dump
from lockstep.scenarios import load as load_scenario
from lockstep.scenarios.renamed import COLUMNS

_EXPECTED = "give the --out of simulate, run, validate, sweep or recommend, or a folder of such folders"


@dataclass(frozen=True)
class Gathered:
    """All that a report is about.

    runs: a row a run, the columns those of `analysis.table.row` and besides status ("ok" or "failed"), error,
    command, and folder (its records, relative to `folder`; "" if there are none).
    """

    kind: str
    """ "run", "runs", "sweep", "recommendation" or "validation"."""
    folder: Path
    scenario: Scenario
    yaml: str
    """The scenario with all defaults filled in."""
    runs: pd.DataFrame
    drawable: Runs
    """The same runs, and the records of those that have some, for pictures."""
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    """Of a validation: what `validate --json` prints, strategy by strategy."""
    left_out: list[str] = field(default_factory=list)
    """What in the folder could not be read, and why."""
    recommendation: dict[str, Any] | None = None
    """What `recommend --json` prints; `runs` are then those of its ranking."""

    @property
    def ended(self) -> pd.DataFrame:
        """The runs that did not fail."""
        return self.runs[self.runs["status"] == "ok"]


def gather(folder: Path) -> Gathered:
    """Read the folder. Raises ScenarioError if there is nothing to report on."""
    if not folder.is_dir():
        raise _nothing(folder, "is not a folder" if folder.exists() else "there is no such folder")
    if (folder / "results.parquet").is_file():
        return _sweep(folder)
    saved.check_ended(folder)
    if (folder / "validation.json").is_file():
        return _validation(folder)
    if (folder / "result.json").is_file():
        return _runs(folder, [folder], "run")
    if (folder / "records.parquet").is_file():
        raise _nothing(folder, "the run in it has not ended: there is no result.json")
    return _several(folder)


def _several(folder: Path) -> Gathered:
    """The runs in folders below; of what else there is, why it was left out."""
    others = {file.parent: "a sweep" for file in folder.rglob("points.jsonl")}
    others |= {file.parent: "a sweep" for file in folder.rglob("results.parquet")}
    others |= {file.parent: "a recommendation" for file in folder.rglob("recommendation.json")}
    left_out = {place: f"{what}, which has a report of its own" for place, what in others.items()}
    inside = {file.parent for file in folder.rglob("result.json")}
    unended = {file.parent for file in folder.rglob("records.parquet")} - inside
    left_out |= dict.fromkeys(unended, "the run in it has not ended")
    below = {place for place in {*inside, *unended} if not others.keys().isdisjoint(place.parents)}
    said = [
        f"{place.relative_to(folder).as_posix()}: {why}"
        for place, why in sorted(left_out.items())
        if place not in below
    ]
    if not inside - below:
        raise _nothing(
            folder, f"there are no runs in it ({'; '.join(said)})" if said else "there are no results in it"
        )
    return _runs(folder, sorted(inside - below), "runs", left_out=said)


def _sweep(folder: Path) -> Gathered:
    scenario = load_scenario(folder / "scenario.yaml", alone=True, beside=False, changed=True)
    try:
        table = pd.read_parquet(folder / "results.parquet").rename(columns=COLUMNS)
    except saved.UNREADABLE as error:
        raise ScenarioError(
            f"cannot be read ({saved.said(error)})", file=str(folder / "results.parquet")
        ) from None
    missing = {"run", "status", "strategy.name", "cluster.workers"} - {*table}
    if missing or table.empty:
        problem = f"has no column {min(missing)}" if missing else "has no rows: no point has ended yet"
        raise ScenarioError(problem, file=str(folder / "results.parquet"))
    known = [] if "engine" not in table else [*table["engine"].dropna()]
    engine = known[0] if known else "simulator"  # of all of them; a run that failed does not say it
    table = table.astype(object).where(table.notna(), None).assign(engine=engine)
    document = _recommendation(folder)
    if document is not None and (table["stage"] == "ranking").any():
        table = table[table["stage"] == "ranking"]  # the search's winners may owe it to luck
    columns = [column for column in map(str, table) if is_key(column)]
    commands: list[Any] = []
    folders: list[Any] = []
    try:
        for _, row in table.iterrows():
            commands.append(command(engine, "scenario.yaml", scenario, {k: row[k] for k in columns}))
            kept = f"runs/{row['run']}"
            folders.append(kept if (folder / kept / "result.json").is_file() else "")
    except saved.UNREADABLE as error:
        problem = f"has what no scenario can have ({saved.said(error)})"
        raise ScenarioError(problem, file=str(folder / "results.parquet")) from None
    runs = _typed(table.assign(command=commands, folder=folders))
    results, left_out = _results(folder, filter(None, folders))
    return Gathered(
        "sweep" if document is None else "recommendation",
        folder, scenario, dump(scenario), runs, _drawable(runs, folder, results),
        recommendation=document, left_out=left_out,
    )  # fmt: skip


def _recommendation(folder: Path) -> dict[str, Any] | None:
    """What `recommend` has left in a folder; None if it has not, or recommends nothing."""
    file = folder / "recommendation.json"
    if not file.is_file():
        return None
    try:
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        known = document["recommended"] is not None and all("point" in each for each in document["ranking"])
    except saved.UNREADABLE as error:
        raise ScenarioError(f"cannot be read ({saved.said(error)})", file=str(file)) from None
    return document if known else None


def _validation(folder: Path) -> Gathered:
    try:
        comparisons = json.loads((folder / "validation.json").read_text(encoding="utf-8"))["points"]
        names = [comparison["measured"]["strategy"] for comparison in comparisons]
    except saved.UNREADABLE as error:
        raise ScenarioError(
            f"cannot be read ({saved.said(error)})", file=str(folder / "validation.json")
        ) from None
    places = [folder / name / side for name in names for side in ("predicted", "measured")]
    return _runs(folder, places, "validation", comparisons)


def _runs(
    folder: Path,
    places: Iterable[Path],
    kind: str,
    comparisons: Iterable[dict[str, Any]] = (),
    left_out: Sequence[str] = (),
) -> Gathered:
    results, unread = _results(folder, [place.relative_to(folder).as_posix() for place in places])
    rows = []
    for name, result in results.items():
        metrics = tables.row(result)
        file = (Path(name) / "scenario.yaml").as_posix()
        does = command(result.engine, file, result.scenario, metrics)
        rows.append({**metrics, "status": "ok", "error": None, "command": does, "folder": name})
    if not rows:
        raise _nothing(folder, f"its results cannot be read ({'; '.join(unread)[:300]})")
    runs, scenario = _typed(pd.DataFrame(rows)), [*results.values()][-1].scenario
    drawable = _drawable(runs, folder, results)
    why = [*left_out, *unread]
    return Gathered(kind, folder, scenario, dump(scenario), runs, drawable, [*comparisons], why)


def _results(folder: Path, names: Iterable[str]) -> tuple[dict[str, Result], list[str]]:
    """The runs in folders below, by name, and what is wrong with those that cannot be read."""
    found, left_out = dict[str, Result](), []
    for name in names:
        try:
            found[name] = saved.load(folder / name)
        except ScenarioError as error:
            left_out.append(f"{name}: {error.problem}")
    return found, left_out


def _drawable(runs: pd.DataFrame, folder: Path, results: dict[str, Result]) -> Runs:
    drawable = Runs(runs, [folder / name for name in results])
    vars(drawable)["results"] = [*results.values()]  # they are read already
    return drawable


def _typed(runs: pd.DataFrame) -> pd.DataFrame:
    """With numbers as numbers, and None where there is nothing."""
    return runs.infer_objects().reset_index(drop=True)


def _nothing(folder: Path, problem: str) -> ScenarioError:
    return ScenarioError(f"{problem}; {_EXPECTED}", file=str(folder))
