"""Who holds a run up: told from statuses alone, without processes and without a clock."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.executor.blame import stalled
from lockstep.executor.watchdog import LEAST_S, Stall, Status, Watchdog

NAMES = ["worker 0", "worker 1", "server 0"]
ABOUT = {rank: {"host": "node1", "pid": 0} for rank in range(3)}
FROM_ANYONE, FROM_THE_SERVER = (("push", None),), (("parameters", 2),)


def watchdog(deadline_s: float | None = None) -> Watchdog:
    """Of two workers and their server."""
    dog = Watchdog(3, deadline_s)
    dog.senders = [[2], [2], [0, 1]]
    for rank in range(3):
        dog.expect(rank, 0.0)
    return dog


def told(dog: Watchdog, until: float, *statuses: Status, each_s: float = 0.5, since: float = 0.0) -> None:
    """Everybody says the same again and again; None says nothing."""
    steps = int((until - since) / each_s)
    for step in range(1, steps + 1):
        for rank, status in enumerate(statuses):
            if status is not None:
                dog.hear(rank, status, since + step * each_s)


def running(**changes: object) -> Status:
    return Status(**{"begun": True, **changes})  # type: ignore[arg-type]


def test_who_gives_no_sign_is_told_when_the_deadline_is_over() -> None:
    dog = watchdog()
    waits = running(waits=FROM_ANYONE)
    dog.hear(1, running(), 0.0)
    told(dog, LEAST_S, running(), None, waits)
    dog.hear(0, running(done=1), LEAST_S)
    assert dog.stall(LEAST_S) is None
    stall = dog.stall(LEAST_S + 0.1)
    assert stall == Stall("silent", (1,), pytest.approx(LEAST_S + 0.1), (2,))
    said = stalled(stall, NAMES, {1: {"host": "node7", "pid": 1}})
    assert said.startswith(
        "worker 1 (rank 1) on node7 has given no sign for 20 s: it, its host or the network"
    )
    assert said.endswith("; server 0 waited for it")


def test_who_is_busy_without_end_is_told_and_who_waits_for_it() -> None:
    dog = watchdog(5)
    waits = running(waits=FROM_THE_SERVER)
    told(dog, 5.5, waits, running(), running(waits=FROM_ANYONE))
    stall = dog.stall(5.6)
    assert stall is not None
    assert (stall.kind, stall.ranks, stall.waiting) == ("stuck", (1,), (0, 2))


def test_a_long_gradient_is_waited_for() -> None:
    """The deadline is ten of the longest pieces of work, what somebody is at included."""
    dog = watchdog()
    told(dog, 100, running(waits=FROM_THE_SERVER), running(longest_s=60.0), running(waits=FROM_ANYONE))
    assert dog.stall(100) is None
    assert dog.waited_for(100) == [1]
    assert dog.stall(601) is not None


def test_who_waits_for_somebody_that_gets_on_may_wait_for_long() -> None:
    """As in local SGD: a server waits while workers make hundreds of steps."""
    dog = watchdog()
    for step in range(400):
        for rank, status in enumerate([running(done=step), running(done=step), running(waits=FROM_ANYONE)]):
            dog.hear(rank, status, step * 0.5)
    assert dog.stall(200) is None


def test_a_message_that_does_not_arrive_is_told_by_its_ends() -> None:
    dog = watchdog(5)
    worker = running(waits=FROM_THE_SERVER, sent={2: 7})
    server = running(waits=FROM_ANYONE, looked=True, taken={0: 5})
    for step in range(12):  # the other worker gets on
        for rank, status in enumerate([worker, running(done=step), server]):
            dog.hear(rank, status, step * 0.5)
    stall = dog.stall(6)
    assert stall is not None
    assert (stall.kind, stall.ranks, stall.messages) == ("lost", (0, 2), 2)
    assert stalled(stall, NAMES, ABOUT).startswith(
        "2 messages from worker 0 (rank 0) on node1 to server 0 (rank 2) on node1 did not arrive within"
    )


def test_a_message_that_nobody_looks_for_is_not_lost() -> None:
    dog = watchdog(5)
    for step in range(40):
        busy = running(done=step, looked=step % 4 == 0)  # looks now and then, between its gradients
        for rank, status in enumerate([running(done=step, sent={2: 1}), running(done=step), busy]):
            dog.hear(rank, status, step * 0.5)
    assert dog.stall(20) is None


def test_a_deadlock_is_told_as_one() -> None:
    dog = watchdog(5)
    told(dog, 6, *[running(waits=((None, (rank + 1) % 3),)) for rank in range(3)])
    stall = dog.stall(6)
    assert stall is not None
    assert (stall.ranks, stall.waiting) == ((), (0, 1, 2))
    assert stalled(stall, NAMES, ABOUT).startswith("nobody gets on: for 6 s all processes have waited")


def test_who_has_ended_is_not_waited_for_and_says_nothing_more() -> None:
    dog = watchdog(5)
    told(dog, 1, *[running(ended=True)] * 3)
    assert dog.stall(1000) is None


def test_before_the_clock_starts_there_is_more_time() -> None:
    dog = watchdog()
    told(dog, 100, *[Status()] * 3)
    assert dog.stall(100) is None
    told(dog, 125, *[Status()] * 3, since=100)
    assert dog.stall(125) is not None


def test_a_watchdog_that_has_slept_blames_nobody() -> None:
    dog = watchdog(5)
    told(dog, 2, *[running()] * 3)
    dog.forgive(60)
    assert dog.stall(60) is None


STATUS = st.builds(
    Status,
    done=st.integers(0, 100),
    waits=st.none()
    | st.lists(st.tuples(st.none() | st.just("push"), st.none() | st.integers(0, 2))).map(tuple),
    begun=st.booleans(), ended=st.booleans(), longest_s=st.floats(0, 100),
    sent=st.dictionaries(st.integers(0, 2), st.integers(0, 9)),
    taken=st.dictionaries(st.integers(0, 2), st.integers(0, 9)),
    looked=st.booleans(), stood_s=st.floats(0, 10), refused=st.integers(0, 3), done_share=st.floats(0, 1),
)  # fmt: skip


@given(STATUS)
def test_a_status_is_told_whole(status: Status) -> None:
    import json

    assert Status.from_json(json.loads(json.dumps(status.to_json()))) == status


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), STATUS, st.floats(0, 30)), max_size=30), st.floats(0, 200))
def test_whatever_is_told_a_verdict_is_one(heard: Sequence[tuple[int, Status, float]], later: float) -> None:
    dog, now = watchdog(), 0.0
    for rank, status, pause in heard:
        now += pause
        dog.hear(rank, status, now)
        assert all(0 <= other < 3 for other in dog.waited_for(now))
    stall = dog.stall(now + later)
    if stall is not None:
        assert stall.seconds > 0
        assert not set(stall.ranks) & set(stall.waiting) or stall.kind == "lost"
        assert stalled(stall, NAMES, ABOUT)
        assert not any(dog.status.get(rank, Status()).ended for rank in stall.ranks[-1:])
