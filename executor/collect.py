"""Puts what the processes of a run left in the store together into one Result."""

import pickle
import time
from collections.abc import Callable, Sequence

import pandas as pd
import torch
import torch.distributed as dist

from analysis.records import Recorder, Result, join
from executor.process import Outcome, everyone
from executor.store import get, has
from scenarios import Scenario
from strategies import find, unused
from strategies.placement import as_if_on_one_host, evaluated
from workloads import Learner, build, deterministic_threads, partition, sizes
from workloads.compute_time import mean_gradient_s
from workloads.snapshots import assemble, joined, merged

_GRACE_S = 3.0  # for a process told to stop to hand over its records


def evaluator(scenario: Scenario) -> Learner | None:
    """What evaluates the run's parameters; None if nothing is learned. Raises ScenarioError."""
    if not scenario.workload.learns:
        return None
    with deterministic_threads():
        return build(scenario.workload, scenario.cluster.workers, scenario.seed)


def outcomes(store: dist.Store, ranks: Sequence[int]) -> list[Outcome]:
    """What these processes left; those that left nothing are passed over."""
    keys = [f"outcome/{rank}" for rank in ranks]
    return [pickle.loads(get(store, key)) for key in keys if has(store, key)]


def await_outcomes(store: dist.Store, expected: Callable[[], Sequence[int]]) -> None:
    """Wait, but not for long, for what processes that were told to stop leave."""
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until and not all(has(store, f"outcome/{rank}") for rank in expected()):
        time.sleep(0.02)


def records_so_far(store: dist.Store, world: int) -> pd.DataFrame | None:
    """The records of a run that did not end well; None if there are none."""
    found = outcomes(store, range(world))
    return records(found) if found else None


def records(found: Sequence[Outcome]) -> pd.DataFrame:
    """All their records, in the order in which things ended."""
    return join([outcome.records for outcome in found])


def result(scenario: Scenario, store: dist.Store, learner: Learner | None) -> Result:
    """The result of a run that has ended; loss and accuracy are computed now, off the clock."""
    roles, models = everyone(scenario), _models(scenario)
    found = outcomes(store, range(len(roles)))
    servers = [rank for rank, role in enumerate(roles) if role.kind == "server"]
    table, parameters = records(found), None
    if learner is not None:
        evaluations = Recorder()
        with deterministic_threads():
            snapshots = [found[rank].snapshots for rank in evaluated(roles, models)]
            if models == "shared":
                snapshots = [merged([outcome.snapshots for outcome in found])]
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
        + _overruns(found, len(gradients)),
        interleaving=pd.concat([outcome.interleaving for outcome in found], ignore_index=True),
    )


def _overruns(found: Sequence[Outcome], gradients: int) -> list[str]:
    overruns = [ratio for outcome in found for ratio in outcome.overruns]
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

    def __init__(self, scenario: Scenario, store: dist.Store, learner: Learner | None) -> None:
        self.scenario = scenario
        self.store = store
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
        keys = [f"snapshot/{holder}/{version}" for holder in range(self.holders)]
        if version <= self.seen or not self.store.check(keys):
            return
        self.seen = version
        parts = [torch.frombuffer(bytearray(get(self.store, key)), dtype=torch.float32) for key in keys]
        accuracy = self.learner.evaluate(joined(parts, self.models == "own")).accuracy
        if accuracy is not None and accuracy >= target:
            self.store.set("stop", "1")
