"""How a run ends, as a state machine by itself: any order of steps and updates ends in exactly one way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.job.ending import Ending, Endless, counting
from lockstep.job.plan import Plan
from tests.support.scenarios import scenario

SERVERS, WORKERS = 3, 4
TREE = {"count": SERVERS, "hierarchy": {"groups": 2}}


class Watched:
    """The end of a run of the strategy, and how often it has been told to be over."""

    def __init__(self, strategy: str, stop: dict[str, Any], servers: Any = SERVERS) -> None:
        config = scenario(
            strategy=strategy, stop=stop, cluster__servers=servers, cluster__workers=WORKERS,
            workload={"dataset": "digits", "batch_size": 180, "learning": False},
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
    watched = Watched("asynchronous", {"updates": 100})
    owners, versions = list(watched.plan.owners.ranks), [0] * SERVERS
    reached = False
    for moment, which in enumerate(order):
        if not reached and moment >= when and min(versions) >= version:
            watched.ending.reached(version)
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
            ending.use(worker)
            used[worker] += 1
    assert sum(used) <= together
    for worker in range(WORKERS):  # those who go on have the rest
        while ending.available(worker, used[worker]):
            ending.use(worker)
            used[worker] += 1
    assert sum(used) == min(together, steps * WORKERS)


def test_one_that_only_answers_does_not_retire() -> None:
    watched = Watched("gossip", {"updates": 2})
    assert not watched.ending.updated(0, 1)
    assert not watched.ending.updated(0, 2, idle=True)
    assert watched.ending.updated(1, 2)
    assert not watched.overs


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_is_told_from_elsewhere_never_ends_a_run(version: int) -> None:
    plan = Watched("asynchronous", {"updates": 2}).plan
    ending = Endless(plan)
    assert not any(ending.updated(owner, version) for owner in plan.owners.ranks)


def test_processes_that_share_counts_end_as_one() -> None:
    """An Ending for each owner, as in real processes."""
    plan, count, overs = Watched("asynchronous", {"updates": 2}).plan, counting(), []
    endings = {rank: Ending(plan, count, lambda rank=rank: overs.append(rank)) for rank in plan.owners.ranks}
    for version in (1, 2):
        for rank, ending in endings.items():
            assert ending.updated(rank, version) == (version == 2)
    assert overs == [max(endings)]
