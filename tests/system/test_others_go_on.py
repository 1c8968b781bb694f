"""Real runs whose others go on while one is gone, as simulated ones do."""

from itertools import product
from typing import Any

import pytest

import lockstep
from lockstep import Result
from lockstep.scenarios.loading import made
from lockstep.studies.chaos.invariants import broken
from tests.support.failing import CRASH, HANG, LINK, document
from tests.support.nightly import drawn
from tests.support.pace import undisturbed
from tests.support.testbed import needs_testbed

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("strategy", "on", "fault", "rounds"),
    [
        *drawn(
            [
                ("synchronous", "continue", CRASH | {"back_after": "2 s"}, True),
                ("asynchronous", "continue", HANG, True),
                ("asynchronous", "continue", LINK | {"down_for": "2 s"}, True),
                ("synchronous", "continue", LINK | {"down_for": "2 s"}, True),
                ("synchronous", "continue", CRASH | {"back_after": None}, True),
            ],
            one_in=3,
            family=lambda case: "link" in case[2],
        ),
        ("synchronous", "wait", CRASH | {"back_after": "2 s"}, False),
    ],
)
def test_the_others_go_on_while_a_worker_is_gone(strategy: str, on: str, fault: Any, rounds: bool) -> None:
    """Until it is back, and takes part again."""
    stop = {"time": "5 s"}
    scenario = made(document(fault, strategy=strategy, stop=stop, recovery={"on_failure": on}))
    found, model = lockstep.run(scenario), lockstep.simulate(scenario)
    for result in (found, model):
        updates = result.records.query("event == 'update'")
        meanwhile = updates.query("2 < end < 2.9")
        assert bool(len(meanwhile)) is rounds
        assert set(meanwhile["peer"]) <= {0}
        assert set(updates.query("end < 1")["peer"]) == {0, 1}
        later = updates.query("end > 3.2 and peer == 1")
        assert bool(len(later)) is (fault.get("back_after", "") is not None)
    own, its = found.metrics, model.metrics
    assert own["failures"] == its["failures"] == 1
    assert own["time_to_detect_s"] == pytest.approx(its["time_to_detect_s"])
    assert own["availability"] == pytest.approx(its["availability"], rel=0.02)
    assert own["lost_samples"] <= 3 * 32
    if fault.get("back_after", "") is not None:
        assert 2.0 <= own["time_to_recover_s"] < 4.0


@pytest.mark.parametrize(
    ("strategy", "fault"),
    drawn(
        [
            *product(
                ("gossip", "ad-psgd", "ako", "d-psgd", "sgp", "osgp"), (CRASH | {"back_after": "2 s"}, HANG)
            ),
            *product(("all-reduce",), (CRASH | {"back_after": "2 s"}, HANG)),
            *product(("gossip", "all-reduce"), (LINK | {"down_for": "2 s"}, CRASH | {"back_after": None})),
        ],
        one_in=12,
        family=lambda case: case[0] == "all-reduce",
    ),
)
def test_workers_without_servers_go_on_while_one_is_gone(strategy: str, fault: Any) -> None:
    recovery = {"checkpoint": {"every": "5 updates"}, "on_failure": "continue"}
    more: dict[str, Any] = {"strategy": strategy, "recovery": recovery, "stop": {"time": "5 s"}}
    scenario = made(document(fault, cluster={"workers": 3}, **more))
    found, model = lockstep.run(scenario), lockstep.simulate(scenario)
    comes_back = fault.get("back_after", "") is not None
    for result in (found, model):
        steps = result.records.query("event == 'update' and batches > 0")
        assert set(steps.query("2 < end < 2.9")["peer"]) == {0, 2}
        assert (1 in set(steps.query("end > 4.2")["peer"])) is comes_back
        assert not [*broken(result)]
        # five since the checkpoint, one under way, six while it is cut off
        assert result.metrics["lost_samples"] <= 12 * 32
    own, its = found.metrics, model.metrics
    assert own["failures"] == its["failures"] == 1
    assert own["time_to_detect_s"] == pytest.approx(its["time_to_detect_s"])
    assert own["availability"] == pytest.approx(its["availability"], rel=0.02)
    if comes_back:
        assert 2.0 <= own["time_to_recover_s"] < 4.0


@pytest.mark.parametrize("strategy", drawn(["gossip", "ad-psgd", "ako", "d-psgd", "sgp", "osgp"], one_in=3))
@pytest.mark.parametrize("back_after", drawn(["500 ms", None], one_in=2))
def test_workers_without_servers_end_together(strategy: str, back_after: str | None) -> None:
    """Who is back makes again what it has lost, and the others are there until it has; or without it."""
    recovery = {"checkpoint": {"every": "10 updates"}, "on_failure": "continue"}
    more: dict[str, Any] = {"strategy": strategy, "recovery": recovery, "stop": {"steps": 30}}
    scenario = made(document(CRASH | {"back_after": back_after}, cluster={"workers": 3}, **more))
    for result in (lockstep.run(scenario), lockstep.simulate(scenario)):
        metrics = result.metrics
        assert metrics["failures"] == 1
        assert metrics["samples"] == 32 * (3 * 30 if back_after else 2 * 30 + 10)
        assert not [*broken(result)]


@needs_testbed
def test_who_was_cut_off_is_at_work_as_soon_as_its_link_is_back() -> None:
    """Whoever connects before it is waits for TCP's first retransmission, a second."""
    more: dict[str, Any] = {"strategy": "asynchronous", "recovery": {"on_failure": "continue"}}
    network = {"network": {"bandwidth": "1 Gbit/s"}}
    scenario = made(document(LINK | {"down_for": "2 s"}, cluster=network, stop={"time": "5 s"}, **more))

    def again() -> Result:
        return lockstep.run(scenario, testbed=True)

    found = undisturbed(again, lambda run: run.metrics["time_to_recover_s"] < 2.8)
    assert found.metrics["failures"] == 1
    assert 2.0 <= found.metrics["time_to_recover_s"] < 2.8


def test_a_worker_that_is_killed_again_before_it_is_there_is_counted_once() -> None:
    again = [CRASH | {"at": at, "back_after": "10 ms"} for at in ("800 ms", "830 ms")]
    more: dict[str, Any] = {"recovery": {"on_failure": "continue"}, "stop": {"updates": 25}}
    found = lockstep.run(made(document(*again, **more)))
    assert found.metrics["failures"] == 2
    assert found.metrics["lost_samples"] <= 4 * 32
    assert not [*broken(found)]
