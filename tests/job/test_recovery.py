"""Of what has befallen a run: until when it counts, and when who failed was at work again."""

import pytest

from lockstep.analysis.records import Recorder, of
from lockstep.job.faults import Crash
from lockstep.job.plan import Plan
from lockstep.job.recovery import Faults, recovered
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
