"""Other clusters, and whether the answer would be another one there."""

from collections.abc import Callable
from dataclasses import dataclass

from lockstep.recommendation.ranking import Ranked
from lockstep.recommendation.space import Candidate, with_workers
from lockstep.resources import in_cluster, scaled
from lockstep.scenarios import Scenario, ScenarioError, override
from lockstep.scenarios.network import Background, IntraHost

_BANDWIDTHS = ("bandwidth", "server_bandwidth", "uplink", "link", "line_rate")
_TIMES = ("value", "low", "high", "mean", "shift")


def _network(factor: float, names: tuple[str, ...]) -> Callable[[Scenario], Scenario]:
    def change(scenario: Scenario) -> Scenario:
        besides = (Background, IntraHost)  # others' traffic, and what is inside hosts
        return in_cluster(scenario, network=scaled(scenario.cluster.network, names, factor, besides))

    return change


def _faster(scenario: Scenario) -> Scenario:
    compute = scaled(scenario.cluster.compute, _TIMES, 0.5)
    return in_cluster(scenario, compute=scaled(compute, ("peak",), 2.0))


def _one_straggler(scenario: Scenario) -> Scenario:
    if scenario.cluster.stragglers:
        return scenario
    return override(scenario, "cluster.stragglers", [{"worker": 0, "slowdown": 3}])


CHANGES: dict[str, Callable[[Scenario], Scenario]] = {
    "2× bandwidth": _network(2.0, _BANDWIDTHS),
    "½ bandwidth": _network(0.5, _BANDWIDTHS),
    "2× latency": _network(2.0, ("latency",)),
    "½ latency": _network(0.5, ("latency",)),
    "no stragglers": lambda its: in_cluster(its, stragglers=()),
    "stragglers twice as slow": lambda its: in_cluster(
        its, stragglers=scaled(its.cluster.stragglers, ("slowdown",), 2.0)
    ),
    "one worker three times slower": _one_straggler,
    "processors twice as fast": _faster,
    "2× workers": lambda its: with_workers(its, 2 * its.cluster.workers),
    "2× servers": lambda its: override(its, "cluster.servers.count", 2 * its.cluster.servers.count),
}
"""What is asked → the cluster with that change, or the same one where it means nothing."""


def means_something(scenario: Scenario, change: str) -> bool:
    """Whether a change changes the scenario; one that is not possible there may be for other strategies."""
    try:
        return CHANGES[change](scenario) != scenario
    except ScenarioError:
        return True


def changed(scenario: Scenario, change: str) -> Scenario | None:
    """The scenario with a change; None where it means nothing, or the strategy cannot run there."""
    import lockstep

    try:
        found = CHANGES[change](scenario)
        lockstep.check(found)
    except ScenarioError:
        return None
    return found


@dataclass(frozen=True)
class Answer:
    """Which finalists are best with a change, and without it (`usual`).

    Each has the best and, if that is in step and nothing is learned, the one that is faster, if any.
    """

    change: str
    """What is different, such as "2× bandwidth"."""
    usual: tuple[Candidate, ...]
    best: tuple[Candidate, ...]
    ranked: list[Ranked]
    """The finalists on that cluster, best first."""

    @property
    def other(self) -> bool:
        """Whether the answer is another one."""
        return self.best != self.usual

    def of(self, candidate: Candidate) -> Ranked:
        """What a candidate is worth with the change."""
        return next(each for each in self.ranked if each.candidate == candidate)
