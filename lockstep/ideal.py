"""What stands between a run and the ideal: changes to its cluster one after the other, each simulated."""

from collections.abc import Callable, Mapping
from typing import Any

from lockstep.analysis.what_if import IDEAL, NOW, Step, WhatIf
from lockstep.job.plan import Plan
from lockstep.recommendation import what_if as asked
from lockstep.resources import by_sizes, in_cluster
from lockstep.scenarios import Network, Scenario, ScenarioError
from lockstep.scenarios.compute import Compute, Constant
from lockstep.scenarios.faults import Fault, Resize
from lockstep.workloads.compute_time import mean_gradient_s


def _alone(scenario: Scenario) -> Scenario:
    """Nothing takes time but computing, and a gradient takes as long as any other."""
    cluster, plan = scenario.cluster, Plan.of(scenario)
    mean = mean_gradient_s(scenario, plan.sizes)
    given = cluster.compute.backward if isinstance(cluster.compute, Compute) else None
    compute = Compute(time=Constant.model_construct(distribution="constant", value=mean), backward=given)
    return in_cluster(
        scenario, compute=compute, network=Network(), stragglers=(), kinds=(), faults=_planned(scenario),
        codecs={}, cores_per_host=None, memory_bandwidth=None, storage=None, apply_overhead=0.0,
        pass_overhead=0.0, exchange_overhead=0.0,
    )  # fmt: skip


def _planned(scenario: Scenario) -> tuple[Fault, ...]:
    """What is no failure: workers that join and leave by plan."""
    return tuple(item for item in scenario.cluster.faults if isinstance(item, Resize))


CHANGES: Mapping[str, Callable[[Scenario], Scenario]] = {
    "2× bandwidth": asked.CHANGES["2× bandwidth"],
    "no stragglers": asked.CHANGES["no stragglers"],
    "no faults": lambda its: in_cluster(its, faults=_planned(its)),
    "2× servers": asked.CHANGES["2× servers"],
    IDEAL: _alone,
}
"""What is changed, in this order, each besides all before it."""


def ladder(scenario: Scenario) -> dict[str, Scenario]:
    """The scenario as it is, and with one change more each time; not with those that mean nothing there."""
    import lockstep

    found = {NOW: scenario}
    for change, make in CHANGES.items():
        last = list(found.values())[-1]
        if change == "2× servers" and not Plan.of(last).has_servers:
            continue
        try:
            changed = make(last)
            if changed == last and change != IDEAL:
                continue
            lockstep.check(changed)
        except ScenarioError:  # not possible there, such as more servers than hosts
            continue
        found[change] = changed
    return found


def what_if(scenario: Scenario, progress: Callable[[float], None] | None = None) -> WhatIf:
    """Try the way to the ideal: see `lockstep.what_if`."""
    import lockstep

    before = lockstep.simulate(scenario).metrics
    reached = before["time_to_target_s"] is not None
    first = scenario if reached or not before["duration_s"] else by_sizes(scenario, before)
    tried = ladder(first)
    steps = []
    for done, (change, each) in enumerate(tried.items(), 1):
        metrics = before if each is scenario else lockstep.simulate(each).metrics
        steps.append(Step(change, metrics["time_to_target_s"] if reached else _million_s(metrics)))
        if progress is not None:
            progress(done / len(tried))
    return WhatIf("time_to_target_s" if reached else "million_s", tuple(steps))


def _million_s(metrics: Mapping[str, Any]) -> float | None:
    rate = metrics.get("goodput") or metrics["throughput"]  # what was lost again does not count
    return 1e6 / rate if rate else None
