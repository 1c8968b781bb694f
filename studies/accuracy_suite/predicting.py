"""Predicts points, on all cores: the scenario on the network that it was measured over, with a profile.

A prediction is the mean of several simulations (see `chance`), which differ in what chance does in the
network: each has other draws of the latencies, or, where the profile has no jitter, a latency that is a
microsecond longer than the last one's. Only the first one learns, where anything is learned.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import lockstep
from lockstep.pool import cores, results
from lockstep.scenarios import Scenario
from lockstep.scenarios.profile import Profile
from lockstep.studies.accuracy_suite.campaign import Campaign
from lockstep.studies.accuracy_suite.chance import pooled, wanting
from lockstep.studies.accuracy_suite.digest import Digest, digest
from lockstep.studies.accuracy_suite.point import Point
from lockstep.studies.accuracy_suite.profiles import with_profile
from lockstep.validation import on_loopback, on_testbed

LEAST, MOST = 5, 10  # simulations of a point
ENOUGH = 0.005  # standard error of their mean, relative to it
_LONGER_S = 1e-6


def predict(point: Point, profiles: Sequence[Profile], campaign: Campaign) -> Digest:
    """The prediction of one point: a pure function."""
    scenario = with_profile(point, profiles)
    if campaign.testbed:
        there = on_testbed(scenario)
    else:
        assert campaign.loopback is not None
        there = on_loopback(scenario, campaign.loopback)
    found = [digest(lockstep.simulate(there))]
    while wanting(found, LEAST, MOST, ENOUGH):
        found.append(digest(lockstep.simulate(by_chance(there.sizes_only, len(found)))))
    return pooled(found)


def by_chance(scenario: Scenario, k: int) -> Scenario:
    """The scenario as chance may have it for the k-th time: as it is, for 0."""
    network = scenario.cluster.network
    changes: dict[str, Any] = {"latency": network.latency + k * _LONGER_S}
    if network.jitter is not None and min(network.jitter.deviation, network.latency):
        changes = {"jitter": network.jitter.model_copy(update={"draw": network.jitter.draw + k})}
    return over(scenario, **changes)


def over(scenario: Scenario, **changes: Any) -> Scenario:
    """The scenario over a network that differs in these."""
    network = scenario.cluster.network.model_copy(update=changes)
    cluster = scenario.cluster.model_copy(update={"network": network})
    return scenario.model_copy(update={"cluster": cluster})


def predict_all(
    points: Sequence[Point],
    profiles: Sequence[Profile],
    campaign: Campaign,
    progress: Callable[[float], None] | None = None,
) -> list[dict[str, Any]]:
    """A row for each point; one that cannot be predicted has its `error`. Raises ScenarioError."""
    jobs = min(cores(), max(1, len(points) // 4))  # fewer are there before processes are
    found = []
    with results([partial(_row, point, profiles, campaign) for point in points], jobs) as rows:
        for row in rows:
            found.append(row)
            if progress is not None:
                progress(len(found) / len(points))
    return found


def _row(point: Point, profiles: Sequence[Profile], campaign: Campaign) -> dict[str, Any]:
    try:
        return {"name": point.name, "error": None, **predict(point, profiles, campaign)}
    except RuntimeError as failure:
        return {"name": point.name, "error": f"{type(failure).__name__}: {failure}".splitlines()[0]}
