"""Puts what the processes of a run left in folders together into one Result."""

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor

import lockstep.analysis.streams as streams
from lockstep.analysis.computations import whole_gradient_seconds
from lockstep.analysis.records import Recorder, join
from lockstep.analysis.result import Result
from lockstep.executor import snapshot_file, steal_time
from lockstep.executor.core_time import of_all
from lockstep.executor.devices import own
from lockstep.executor.hub import Hub
from lockstep.executor.stopping import say
from lockstep.executor.stores import Store
from lockstep.job.plan import Plan
from lockstep.job.snapshots import Snapshots, assemble, merged, together
from lockstep.scenarios import Scenario
from lockstep.workloads import Evaluation, Learner, build, deterministic_threads
from lockstep.workloads.compute_time import mean_gradient_s

_GRACE_S = 3.0  # for a process told to stop to hand over its records


class Evaluator(Protocol):
    """What evaluates a run's parameters: a learner, here or in a process of its own (evaluating.py)."""

    def evaluate(self, parameters: Tensor) -> Evaluation:
        """Return the loss and the metrics of parameters on held-out data. Raises ScenarioError."""


def evaluator(scenario: Scenario) -> Learner | None:
    """What evaluates the run's parameters, on a GPU if there is one; None if nothing is learned.

    Raises ScenarioError.
    """
    if not scenario.workload.learns:
        return None
    with deterministic_threads():
        device = own(scenario.cluster.device)
        return build(scenario.workload, scenario.replicas, scenario.seed, device)


def await_outcomes(folder: Path, expected: Callable[[], Sequence[int]]) -> None:
    """Wait, but not for long, for what processes that were told to stop leave."""
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until and not all(_outcome(folder, rank).exists() for rank in expected()):
        time.sleep(0.02)


def _outcome(folder: Path, rank: int) -> Path:
    return folder / f"outcome-{rank}.json"


def has_ended(folder: Path, rank: int) -> bool:
    """Whether a process has left all that it had to."""
    return _outcome(folder, rank).exists()


def _outcomes(folder: Path, ranks: Sequence[int]) -> list[Any]:
    """What those of them that came to their end have left."""
    files = [_outcome(folder, rank) for rank in ranks]
    return [json.loads(file.read_text("ascii")) for file in files if file.exists()]


def result(plan: Plan, folder: Path, kept: Path, learner: Evaluator | None) -> Result:
    """The result of a run that has ended; parameters are evaluated now, off the clock.

    folder: what processes left; kept: what they recorded while the run went on.
    """
    scenario, owners, ranks = plan.scenario, plan.owners, range(len(plan.roles))
    found, parameters = streams.records(streams.streams(kept)), None
    table = Recorder().frame() if found is None else found
    if learner is not None:
        evaluations = Recorder()
        with deterministic_threads():
            kept_by = filter(owners.keeps, ranks) if owners.shown_by_all else owners.evaluated
            files = [folder / f"snapshots-{rank}.npz" for rank in kept_by]  # in the order of the owners
            if owners.shown_by_all:  # who is gone for good has left none
                files = [file for file in files if file.exists()]
            snapshots = [*map(snapshot_file.read, files)]
            snapshots = [merged(snapshots or [Snapshots(0)])] if owners.shown_by_all else snapshots
            for version, at, vector in assemble(snapshots, owners):
                held_out = learner.evaluate(vector)
                evaluations.evaluation(at, version, held_out.loss, held_out.accuracy, held_out.metrics)
                parameters = vector.numpy()
        table = join([table, evaluations.frame()])
    if scenario.cluster.compute == "measured":
        measured = whole_gradient_seconds(plan, table)
        gradient_s = float(measured.mean()) if len(measured) else 0.0
    else:
        gradient_s = mean_gradient_s(scenario, plan.sizes)
    return Result(
        engine="executor",
        plan=plan,
        records=table,
        gradient_s=gradient_s,
        parameters=parameters,
        warnings=[*plan.warnings, *_shared(folder, plan.workers)],
        overruns=_overruns(folder, ranks, table),
        interleaving=interleaving(plan, kept),
        core_s=of_all([left["cores"] for left in _outcomes(folder, ranks)]),
    )


def interleaving(plan: Plan, kept: Path) -> pd.DataFrame:
    """The logs of all nodes."""
    ranks = range(len(plan.roles))
    logs = [log for rank in ranks if len(log := streams.log(kept, rank))]
    return pd.concat(logs or [streams.log(kept, 0)], ignore_index=True)


def disturbances(hub: Hub, names: Sequence[str], stopped: Collection[int] = ()) -> list[str]:
    """What of the run's surroundings makes its times doubtful; not that it has `stopped` processes itself."""
    all_stood = hub.watchdog.stood()
    stood = {names[rank]: seconds for rank, seconds in all_stood.items() if rank not in stopped}
    if hub.stood_s:
        stood["the process that watches the run"] = hub.stood_s
    return [
        f"disturbed: {who} stood still for {seconds:.1f} s, so the run's times are not its own"
        for who, seconds in stood.items()
    ]


def stolen(folder: Path, ranks: Sequence[int]) -> list[str]:
    """What the first process says whose host gave much of its processors' time to others, if any did."""
    cores = [left["cores"] for left in _outcomes(folder, ranks)]
    lines = (steal_time.disturbances(each["steal_s"], each["whole_s"]) for each in cores)
    return next(filter(None, lines), [])


def strangers(hub: Hub) -> list[str]:
    """A line if somebody else tried to connect."""
    refused = hub.refused + sum(status.refused for status in hub.watchdog.status.values())
    return [f"connections of strangers that were refused: {refused}"] if refused else []


def seen(result: Result, hub: Hub, names: Sequence[str], stopped: Collection[int] = ()) -> Result:
    """The result with what the hub has seen of the run's surroundings."""
    found = [*result.disturbances, *disturbances(hub, names, stopped)]
    return replace(result, warnings=[*result.warnings, *strangers(hub)], disturbances=found)


def _shared(folder: Path, workers: Sequence[int]) -> list[str]:
    """A warning for each GPU that several workers had."""
    groups = {tuple(left["sharing"]) for left in _outcomes(folder, workers) if len(left["sharing"]) > 1}
    return [
        f"workers {', '.join(map(str, group))} shared a GPU: their gradients waited for each other"
        for group in sorted(groups)
    ]


def _overruns(folder: Path, ranks: Sequence[int], table: pd.DataFrame) -> list[str]:
    computed = table["event"].value_counts()
    done = f"{computed['pass']} passes" if computed["pass"] else f"{computed['gradient']} gradients"
    overruns = [ratio for left in _outcomes(folder, ranks) for ratio in left["overruns"]]
    if not overruns:
        return []
    return [
        f"{len(overruns)} of {done} took longer than their emulated time "
        f"(up to {max(overruns):.2f} times): make the compute time longer, or use fewer workers"
    ]


class Watch:
    """Follows a run through the store: looks at snapshots until the target is reached."""

    def __init__(
        self, plan: Plan, store: Store, folder: Path, learner: Evaluator | None, absent: Collection[int] = ()
    ) -> None:
        """absent: ranks that are gone for good, which may become more."""
        self.plan, self.target = plan, plan.scenario.stop.goal
        self.store, self.folder = store, folder
        self.learner = learner
        self.seen = 0
        self._absent = absent

    def look(self) -> None:
        """Evaluate the newest snapshot that all owners have; end the run if it is good enough."""
        owns = self.plan.owners
        absent = () if owns.shown_by_all else self._absent
        owners = [owner for owner, rank in enumerate(owns.evaluated) if rank not in absent]
        keys = [f"snapshot/{owner}" for owner in owners]
        if self.target is None or self.learner is None or not self.store.check(keys):
            return
        version = min(int(self.store.get(key)) for key in keys)
        files = [self.folder / f"snapshot-{owner}-{version}" for owner in owners]
        if version <= self.seen or not all(file.exists() for file in files):
            return
        self.seen = version
        parts = [torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.float32) for file in files]
        for file in self.folder.glob("snapshot-*-*"):
            if int(file.name.rpartition("-")[2]) <= version:
                file.unlink()
        found = self.learner.evaluate(together(parts, self.plan.owners))
        if self.target.reached(found.of(self.target.metric)):
            say(self.store)
