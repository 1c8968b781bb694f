"""Puts what the processes of a run left in folders together into one Result."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import torch
import torch.distributed as dist

import lockstep.analysis.streams as streams
from lockstep.analysis.records import Recorder, Result, join
from lockstep.executor import snapshot_file
from lockstep.executor.hub import Hub
from lockstep.executor.process import everyone
from lockstep.scenarios import Scenario
from lockstep.strategies import find, unused
from lockstep.strategies.placement import as_if_on_one_host, evaluated
from lockstep.workloads import Learner, build, deterministic_threads, partition, sizes
from lockstep.workloads.compute_time import mean_gradient_s
from lockstep.workloads.snapshots import assemble, joined, merged

_GRACE_S = 3.0  # for a process told to stop to hand over its records


def evaluator(scenario: Scenario) -> Learner | None:
    """What evaluates the run's parameters; None if nothing is learned. Raises ScenarioError."""
    if not scenario.workload.learns:
        return None
    with deterministic_threads():
        return build(scenario.workload, scenario.cluster.workers, scenario.seed)


def await_outcomes(folder: Path, expected: Callable[[], Sequence[int]]) -> None:
    """Wait, but not for long, for what processes that were told to stop leave."""
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until and not all(_outcome(folder, rank).exists() for rank in expected()):
        time.sleep(0.02)


def _outcome(folder: Path, rank: int) -> Path:
    return folder / f"outcome-{rank}.json"


def result(scenario: Scenario, folder: Path, kept: Path, learner: Learner | None) -> Result:
    """The result of a run that has ended; loss and accuracy are computed now, off the clock.

    folder: what processes left; kept: what they recorded while the run went on.
    """
    roles, models = everyone(scenario), _models(scenario)
    ranks = range(len(roles))
    servers = [rank for rank, role in enumerate(roles) if role.kind == "server"]
    found, parameters = streams.records(streams.streams(kept)), None
    table = Recorder().frame() if found is None else found
    if learner is not None:
        evaluations = Recorder()
        with deterministic_threads():
            whose = ranks if models == "shared" else evaluated(roles, models)
            snapshots = [snapshot_file.read(folder / f"snapshots-{rank}.npz") for rank in whose]
            snapshots = [merged(snapshots)] if models == "shared" else snapshots
            for version, at, vector in assemble(snapshots, models == "own"):
                held_out = learner.evaluate(vector)
                evaluations.evaluation(at, version, held_out.loss, held_out.accuracy)
                parameters = vector.numpy()
        table = join([table, evaluations.frame()])
    emulated = scenario.cluster.compute != "measured"
    gradients = table[table["event"] == "gradient"]
    measured_s = float((gradients["end"] - gradients["start"]).mean()) if len(gradients) else 0.0
    return Result(
        engine="executor",
        scenario=scenario,
        records=table,
        holders=servers or ([0] if models == "shared" else range(len(roles))),
        gradient_s=mean_gradient_s(scenario, sizes(scenario.workload)) if emulated else measured_s,
        parameters=parameters,
        warnings=unused(scenario.strategy.name, scenario.strategy.parameters)
        + partition.unused(scenario.workload)
        + (as_if_on_one_host(scenario.cluster) if models == "shared" else [])
        + _overruns(folder, ranks, len(gradients)),
        interleaving=pd.concat(
            [streams.log(streams.file_of(kept, rank, streams.LOG), rank) for rank in ranks], ignore_index=True
        ),
    )


def disturbances(hub: Hub, names: Sequence[str]) -> list[str]:
    """What of the run's surroundings makes its times doubtful."""
    stood = {names[rank]: seconds for rank, seconds in hub.watchdog.stood().items()}
    if hub.stood_s:
        stood["the process that watches the run"] = hub.stood_s
    found = [
        f"disturbed: {who} stood still for {seconds:.1f} s, so the run's times are not its own"
        for who, seconds in stood.items()
    ]
    refused = hub.refused + sum(status.refused for status in hub.watchdog.status.values())
    if refused:
        found.append(f"connections of strangers that were refused: {refused}")
    return found


def _overruns(folder: Path, ranks: Sequence[int], gradients: int) -> list[str]:
    left = [json.loads(_outcome(folder, rank).read_text("ascii")) for rank in ranks]
    overruns = [ratio for outcome in left for ratio in outcome["overruns"]]
    if not overruns:
        return []
    return [
        f"{len(overruns)} of {gradients} gradients took longer than their emulated time "
        f"(up to {max(overruns):.2f} times): make the compute time longer, or use fewer workers"
    ]


def _models(scenario: Scenario) -> str:
    return find(scenario.strategy.name, scenario.strategy.parameters).models


class Watch:
    """Follows a run through the store: looks at snapshots until the target accuracy is reached."""

    def __init__(self, scenario: Scenario, store: dist.Store, folder: Path, learner: Learner | None) -> None:
        self.scenario = scenario
        self.store, self.folder = store, folder
        self.learner = learner
        self.seen = 0
        self.models = _models(scenario)
        self.holders = len(evaluated(everyone(scenario), self.models))

    def look(self) -> None:
        """Evaluate the newest snapshot that all holders have; end the run if it is good enough."""
        target = self.scenario.stop.target_accuracy
        keys = [f"snapshot/{holder}" for holder in range(self.holders)]
        if target is None or self.learner is None or not self.store.check(keys):
            return
        version = min(int(self.store.get(key)) for key in keys)
        files = [self.folder / f"snapshot-{holder}-{version}" for holder in range(self.holders)]
        if version <= self.seen or not all(file.exists() for file in files):
            return
        self.seen = version
        parts = [torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.float32) for file in files]
        for file in self.folder.glob("snapshot-*-*"):
            if int(file.name.rpartition("-")[2]) <= version:
                file.unlink()
        accuracy = self.learner.evaluate(joined(parts, self.models == "own")).accuracy
        if accuracy is not None and accuracy >= target:
            self.store.set("stop", "1")
