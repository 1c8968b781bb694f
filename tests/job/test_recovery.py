"""Of what has befallen a run: until when it counts, and when who failed was at work again."""

from typing import Any

import pytest

from lockstep.analysis.records import Recorder, of
from lockstep.job.faults import Crash, Fault
from lockstep.job.plan import Plan
from lockstep.job.recovery import Faults, NotBack, next_start, recovered
from lockstep.scenarios.loading import made
from tests.support.failing import CRASH, document


def plan(**more: object) -> Plan:
    """Two workers and a server, rank 2."""
    return Plan.of(made(document(CRASH, **more)))


@pytest.mark.parametrize(
    ("node", "recovers"),
    [
        (0, 6.0),  # its next gradient
        (1, None),  # it makes none any more
        (2, 5.25),  # the next message that reaches the server
        (-1, 5.5),  # anybody's gradient
    ],
)
def test_who_is_back_recovers_with_its_first_work(node: int, recovers: float | None) -> None:
    recorder = Recorder()
    for worker, start in ((0, 1.0), (1, 5.5 if node == -1 else 3.0), (0, 6.0)):
        recorder.gradient(worker, start, start + 1, 0)
    for sender, to, end in ((0, 2, 4.5), (2, 0, 5.1), (0, 2, 5.25)):
        recorder.message(sender, to, end - 0.1, end, end, "pull", 100)
    recorder.note("recovery", node, 4.0, 5.0, -1)
    found = recovered(plan(), recorder.frame())
    assert [*of(found, "recovery", ["end"])["end"]] == ([] if recovers is None else [recovers])
    assert found["end"].is_monotonic_increasing
    assert len(found) == 6 + (recovers is not None)


def test_what_comes_after_the_stop_has_not_befallen_the_run() -> None:
    """A real run's last records may be some milliseconds later."""
    recorder, faults = Recorder(), Faults(plan(stop={"time": "3 s"}))
    for at in (1.0, 3.01):
        faults.befell(Crash(at, at + 5, 0, (1,)), (1,))
    faults.record(recorder, 3.02)
    assert of(recorder.frame(), "fault", ["start", "end"]).to_numpy().tolist() == [[1.0, 3.0]]


def befalling(*items: Any, on: str = "wait", **more: Any) -> list[Fault]:
    """The first ten."""
    recovery = {"on_failure": on, "checkpoint": {"every": "5 updates"}}
    faults = Faults(Plan.of(made(document(*items, recovery=recovery, **more))))
    return [faults.pop() for _, _ in zip(range(10), iter(lambda: faults.next, None), strict=False)]


CUT = {"link": {"host": 1}, "at": "1 s", "down_for": "5 s"}


@pytest.mark.parametrize(
    ("first", "befallen"),
    [
        ({"worker": 1, "at": "1 s", "crash": True, "back_after": "5 s"}, [(1,), ()]),
        ({"worker": 1, "at": "1 s", "hang_for": "5 s"}, [(1,), ()]),
        (CUT, [(1,), ()]),
        (CUT | {"down_for": "200 ms"}, [(1,), (1,)]),  # over before it is noticed
        ({"worker": 1, "at": "1 s", "crash": True, "back_after": "500 ms"}, [(1,), (1,)]),
    ],
)
def test_nothing_befalls_who_has_failed_already(first: Any, befallen: list[tuple[int, ...]]) -> None:
    again = {"worker": 1, "at": "2 s", "crash": True, "back_after": "1 s"}
    assert [fault.ranks for fault in befalling(first, again)] == befallen


def test_who_is_gone_for_good_holds_up_no_other_faults() -> None:
    gone = {"worker": 1, "at": "1 s", "crash": True}
    often = {"worker": 1, "mtbf": "1 s", "crash": True, "back_after": "10 ms"}
    found = befalling(gone, often, on="continue")
    assert len(found) == 10
    assert not any(fault.ranks for fault in found if fault.at > 1.0)


def test_a_spare_takes_the_place_when_that_is_noticed() -> None:
    for taken in befalling({"mtbf": "5 s", "crash": True}, on="spare"):
        assert taken.until == pytest.approx(taken.at + 0.3)


def test_a_job_that_is_never_whole_again_says_so() -> None:
    often = {"mtbf": "1 s", "crash": True, "back_after": "2 s"}
    cluster = {"workers": 40}
    endless = Plan.of(made(document(often, cluster=cluster)))
    faults = Faults(endless)
    with pytest.raises(NotBack, match="never all there at once"):
        next_start(endless, faults, 1.0, [faults.pop()], 0.0)
    for_a_time = Plan.of(made(document(often, cluster=cluster, stop={"time": "20 s"})))
    faults = Faults(for_a_time)
    assert next_start(for_a_time, faults, 1.0, [faults.pop()], 0.0) >= 20.0


def test_who_does_not_come_back_is_named() -> None:
    """Not who had failed when that was noticed."""
    for_good = {"worker": 0, "at": "1100 ms", "crash": True}
    job = Plan.of(made(document(CRASH, for_good)))
    faults = Faults(job)
    with pytest.raises(NotBack, match=r"worker 0 \(rank 0\) crashed at 1.1 s .* does not come back"):
        next_start(job, faults, 1.3, [faults.pop()], 0.0)
