"""How a run ends, as a state machine by itself: any order of steps and updates ends in exactly one way."""

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from lockstep.job.ending import Ending, counting
from lockstep.job.plan import Plan
from lockstep.workloads import Evaluation
from tests.support.scenarios import scenario

SERVERS, WORKERS = 3, 4
TREE = {"count": SERVERS, "hierarchy": {"groups": 2}}


class Watched:
    """The end of a run of the strategy, and how often it has been told to be over."""

    def __init__(
        self, strategy: str, stop: dict[str, Any], servers: Any = SERVERS, learning: bool = False
    ) -> None:
        config = scenario(
            strategy=strategy, stop=stop, cluster__servers=servers, cluster__workers=WORKERS,
            workload={"dataset": "digits", "batch_size": 180, "learning": learning},
        )  # fmt: skip
        self.plan, self.overs = Plan.of(config), 0
        self.ending = Ending(self.plan, counting(), self._over)

    def _over(self) -> None:
        self.overs += 1


@given(st.lists(st.integers(0, SERVERS - 1), max_size=60), st.integers(1, 6), st.booleans())
def test_a_run_is_over_once_when_the_last_owner_has_made_all_updates(
    order: list[int], limit: int, relayed: bool
) -> None:
    watched = Watched("asynchronous", {"updates": limit}, TREE if relayed else SERVERS)
    owners, versions, retired = list(watched.plan.owners.ranks), [0] * SERVERS, set()
    for which in order:
        if which in retired:
            continue  # who has retired makes no more updates
        versions[which] += 1
        over_before = watched.overs
        retires = watched.ending.updated(owners[which], versions[which])
        everyone = min(versions) >= limit
        assert watched.overs == everyone
        arrives = versions[which] == limit
        assert retires == (arrives and (everyone or not relayed))
        assert watched.ending.retired(owners[which]) == (versions[which] >= limit)
        if watched.overs > over_before:
            assert arrives  # it is the last to arrive who says so
        if retires:
            retired.add(which)
    if not relayed:
        assert retired == {which for which in range(SERVERS) if versions[which] >= limit}


@given(st.lists(st.integers(0, SERVERS - 1), max_size=60), st.integers(0, 30), st.integers(1, 8))
def test_a_target_ends_the_run_when_all_owners_have_come_to_its_version(
    order: list[int], when: int, version: int
) -> None:
    """Owners may be ahead of the version whose parameters were good enough; nobody retires for it."""
    watched = Watched("asynchronous", {"updates": 100, "target_accuracy": 0.5}, learning=True)
    owners, versions = list(watched.plan.owners.ranks), [0] * SERVERS
    reached = False
    for moment, which in enumerate(order):
        if not reached and moment >= when and min(versions) >= version:
            watched.ending.evaluated(version, Evaluation(1.0, None))
            watched.ending.evaluated(version, Evaluation(1.0, 0.49))
            assert not watched.overs
            watched.ending.evaluated(version, Evaluation(1.0, 0.5))
            reached = True
            assert watched.overs == 1
        versions[which] += 1
        assert not watched.ending.updated(owners[which], versions[which])
        assert watched.overs == reached


@given(st.lists(st.integers(0, WORKERS - 1), max_size=80), st.integers(1, 5), st.integers(1, 3))
def test_mini_batches_are_dealt_out_once_and_none_is_left(order: list[int], steps: int, epochs: int) -> None:
    watched = Watched("asynchronous", {"steps": steps, "epochs": epochs})
    ending, together = watched.ending, watched.plan.quota.together
    assert together is not None
    used = [0] * WORKERS
    for worker in order:
        there = ending.available(worker, used[worker])
        assert there == ending.available(worker, used[worker])  # it is the worker's until it is used
        assert there <= (used[worker] < steps)
        if there:
            used[worker] += 1
    assert sum(used) <= together
    for worker in range(WORKERS):  # those who go on have the rest
        while ending.available(worker, used[worker]):
            used[worker] += 1
    assert sum(used) == min(together, steps * WORKERS)


class Bounds(NamedTuple):
    updates: int | None
    time: float | None
    target: float | None


MOMENTS = st.one_of(
    st.tuples(st.just("step"), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("update"), st.integers(0, SERVERS - 1)),
    st.tuples(st.just("time"), st.floats(0.0, 1.0)),
    st.tuples(st.just("accuracy"), st.floats(0.0, 1.0)),
    st.tuples(st.just("leave"), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("said"), st.just(0)),
)
BOUNDS = st.builds(
    Bounds,
    st.none() | st.integers(1, 5),
    st.none() | st.floats(0.5, 4.0),
    st.none() | st.floats(0.2, 0.9),
)


@given(st.lists(MOMENTS, max_size=80), BOUNDS, st.booleans())
def test_any_order_of_all_there_is_ends_in_one_way(
    moments: list[tuple[str, Any]], bounds: Bounds, relayed: bool
) -> None:
    """By a model of a few lines: the run is over for the first of its reasons, is told once, and stays so."""
    given = {
        "updates": bounds.updates,
        "time": bounds.time and f"{bounds.time!r} s",
        "target_accuracy": bounds.target,
    }
    stop = {name: bound for name, bound in given.items() if bound is not None}
    watched = Watched("asynchronous", {"steps": 7, **stop}, TREE if relayed else SERVERS, learning=True)
    ending, roles = watched.ending, watched.plan.roles
    owners = list(watched.plan.owners.ranks)
    now, last, over, told = 0.0, bounds.updates, False, 0
    versions, used, retired, gone = [0] * SERVERS, [0] * WORKERS, set(), set()
    for kind, what in moments:
        if kind == "step" and what not in gone and ending.available(what, used[what]):
            used[what] += 1
        elif kind == "update" and what not in retired:
            versions[what] += 1
            retires = ending.updated(owners[what], versions[what])
            assert retires <= (versions[what] == bounds.updates)  # a target or the time retires nobody
            retired |= {what} if retires else set()
        elif kind == "time":
            now += what
            over |= bounds.time is not None and now >= bounds.time
            assert ending.at(now) == over
        elif kind == "accuracy" and (version := min(versions)):
            ending.evaluated(version, Evaluation(1.0, what))
            if bounds.target is not None and what >= bounds.target and (last is None or version < last):
                last = version
        elif kind == "leave":
            ending.left(what)
            gone.add(what)
        elif kind == "said":
            over = True
            ending.said()
        if last is not None and min(versions) >= last and not over:
            over, told = True, 1
        assert (ending.over, watched.overs) == (over, told)
        assert max(used) <= 7
        for rank, role in enumerate(roles):
            below = set(role.children)
            for sender in (None, *role.parents, *below):
                hopeful = not below or below - gone or sender in role.parents
                assert ending.in_vain(rank, sender) == (not hopeful)
    if over and last == bounds.updates and not relayed and told:
        assert retired == {*range(SERVERS)}  # nobody is left who would wait for another update


@given(st.permutations(range(WORKERS)), st.booleans())
def test_nobody_waits_for_who_has_retired(order: list[int], relayed: bool) -> None:
    """As workers leave, and then relays whose children all have, each node in the end waits in vain."""
    watched = Watched("asynchronous", {"steps": 1}, TREE if relayed else SERVERS)
    ending, roles = watched.ending, watched.plan.roles
    waits = {rank for rank, role in enumerate(roles) if role.children}
    for worker in order:
        assert not any(ending.in_vain(rank, worker) for rank in waits if worker in roles[rank].children)
        ending.left(worker)
        for rank in sorted(waits, reverse=True):  # relays after servers
            if ending.in_vain(rank, None):
                waits.remove(rank)
                ending.left(rank)
    assert not {rank for rank in waits if not ending.in_vain(rank, None)}
    assert not waits or relayed


def test_one_that_only_answers_does_not_retire() -> None:
    watched = Watched("gossip", {"updates": 2})
    assert not watched.ending.updated(0, 1)
    assert not watched.ending.updated(0, 2, idle=True)
    assert watched.ending.updated(1, 2)
    assert not watched.overs


def test_processes_that_share_counts_end_as_one() -> None:
    """An Ending for each owner, as in real processes."""
    plan, count, overs = Watched("asynchronous", {"updates": 2}).plan, counting(), []
    endings = {rank: Ending(plan, count, lambda rank=rank: overs.append(rank)) for rank in plan.owners.ranks}
    for version in (1, 2):
        for rank, ending in endings.items():
            assert ending.updated(rank, version) == (version == 2)
    assert overs == [max(endings)]


def test_an_owner_that_goes_back_arrives_again_and_counts_once() -> None:
    watched = Watched("asynchronous", {"updates": 4}, 2)
    first, second = watched.plan.owners.ranks
    watched.ending.updated(first, 4)
    watched.ending.goes_back(first, 2)
    watched.ending.updated(first, 4)
    assert not watched.overs
    watched.ending.updated(second, 4)
    assert watched.overs == 1
