"""The schedule of faults: pure, in order, and what its distributions promise."""

from itertools import islice, pairwise, takewhile
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from lockstep.job.faults import Crash, Cut, Fault, Hang, schedule
from lockstep.scenarios.faults import Fault as Item
from lockstep.strategies.placement import roles

HOUR = 3600.0


def faults(
    *items: Any, seed: int = 0, workers: int = 4, servers: int = 1, hosts: Any = None, over: Any = None
) -> list[Fault]:
    """Those of some items before 1,000 h."""
    who = roles(workers, servers)
    found = [TypeAdapter(Item).validate_python(item) for item in items]
    where = range(len(who)) if hosts is None else hosts
    stream = schedule(
        found, seed, who, where, lambda worker: worker // 2, over or (lambda crash: crash.until)
    )
    return list(takewhile(lambda fault: fault.at < 1000 * HOUR, islice(stream, 100_000)))


def test_who_is_meant() -> None:
    once = {"at": "10 s", "crash": True}
    found = faults({"worker": 2, **once}, {"server": 0, **once}, {"rack": 1, **once}, {"host": 4, **once})
    assert [fault.ranks for fault in found if isinstance(fault, Crash)] == [(2,), (4,), (2, 3), (4,)]
    assert {(fault.at, fault.until) for fault in found} == {(10.0, inf)}


def test_a_rack_takes_all_that_is_on_its_hosts() -> None:
    """The server is on worker 3's host."""
    (found,) = faults({"rack": 1, "at": "10 s", "crash": True}, hosts=[0, 1, 2, 3, 3])
    assert found.ranks == (2, 3, 4)


def test_a_spare_can_fail_as_soon_as_it_is_there() -> None:
    """Without it a place that nobody comes back to fails once."""
    item = {"worker": 1, "mtbf": "1 h", "crash": True}
    assert len(faults(item)) == 1
    found = faults(item, over=lambda crash: crash.at + 2.0)
    assert len(found) > 800
    assert all(after.at > fault.until == fault.at + 2.0 for fault, after in pairwise(found))


def test_times_of_one_fault() -> None:
    (hang,) = faults({"worker": 1, "at": "15 s", "hang_for": "8 s"})
    assert hang == Hang(15.0, 23.0, 0, (1,))
    (taken,) = faults({"host": 2, "at": "1 s", "notice": "30 s", "back_after": "45 s"})
    assert taken == Crash(1.0, 46.0, 0, (2,), 30.0)  # `at` is when it is gone


@pytest.mark.parametrize(
    ("direction", "cut"), [("both", {(3, 0), (0, 3)}), ("up", {(3, 0)}), ("down", {(0, 3)})]
)
def test_a_link(direction: str, cut: set[tuple[int, int]]) -> None:
    (found,) = faults({"link": {"host": 3, "direction": direction}, "at": "20 s", "down_for": "4 s"})
    assert isinstance(found, Cut)
    assert (found.at, found.until, found.ranks) == (20.0, 24.0, (3,))
    pairs = {(a, b) for a in (0, 1, 3) for b in (0, 1, 3) if found.separated(a, b)}
    assert {pair for pair in pairs if 1 not in pair} == cut


def test_a_partition_leaves_hosts_of_no_group_alone() -> None:
    (found,) = faults({"partition": [[0, 1], [2]], "at": "1 s", "down_for": "1 s"})
    assert isinstance(found, Cut)
    assert found.separated(0, 2)
    assert found.separated(2, 1)
    assert not any(found.separated(*pair) for pair in [(0, 1), (3, 0), (2, 3), (3, 4), (2, 2)])


@pytest.mark.parametrize(
    "life",
    [
        "10 h",
        {"distribution": "weibull", "mean": "10 h", "shape": 0.7},
        {"distribution": "lognormal", "mean": "10 h", "cv": 1.0},
        {"distribution": "exponential", "mean": "10 h"},
    ],
)
def test_availability_is_mtbf_by_mtbf_and_repair(life: Any) -> None:
    """Of a renewal process, whatever the distributions; and it fails every (mtbf + repair)."""
    repair = {"distribution": "exponential", "mean": "2 h"}
    found = faults({"mtbf": life, "back_after": repair}, workers=100)
    down = sum(min(fault.until, 1000 * HOUR) - fault.at for fault in found) / (100 * 1000 * HOUR)
    assert down == pytest.approx(2 / 12, rel=0.06)
    assert len(found) == pytest.approx(100 * 1000 / 12, rel=0.06)


def test_n_machines_that_are_back_at_once_fail_n_times_as_often() -> None:
    """The closed form for exponential lives: the gaps are exponential, too, with mean Θ/n."""
    found = faults({"mtbf": "100 h", "back_after": "0 s"}, workers=64)
    gaps = np.diff([0.0, *(fault.at for fault in found)])
    assert gaps.mean() == pytest.approx(100 * HOUR / 64, rel=0.1)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)


def test_a_machine_that_does_not_come_back_fails_once() -> None:
    assert len(faults({"worker": 0, "mtbf": "1 h"})) == 1


@given(seed=st.integers(0, 2**32), hours=st.floats(1, 100), workers=st.integers(1, 6))
def test_a_pure_function_in_the_order_of_time(seed: int, hours: float, workers: int) -> None:
    item = {"mtbf": f"{hours} h", "back_after": "1 h"}
    link = {"link": {"host": 0}, "mtbf": f"{hours} h", "down_for": "1 min"}
    found = faults(item, link, seed=seed, workers=workers)
    again = faults(item, link, seed=seed, workers=workers)
    assert [(f.at, f.until, f.item) for f in found] == [(f.at, f.until, f.item) for f in again]
    assert [f.at for f in found] == sorted(f.at for f in found)
    for rank in range(workers):  # up and down by turns
        spells = [(f.at, f.until) for f in found if isinstance(f, Crash) and f.ranks == (rank,)]
        assert all(until <= at for (_, until), (at, _) in pairwise(spells))
    alone = faults(item, seed=seed, workers=workers)  # another item changes none of its draws
    assert alone == [f for f in found if f.item == 0]


def test_a_trace(tmp_path: Any) -> None:
    file = tmp_path / "spot.csv"
    file.write_text("5, 1, down\n7, 0, down\n9.5, 1, up\n")
    assert faults({"trace": str(file)}) == [Crash(5.0, 9.5, 0, (1,)), Crash(7.0, inf, 0, (0,))]
