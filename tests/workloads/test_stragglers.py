"""Stragglers: closed forms, independent integration, and who is slow together."""

import hashlib
import math
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario
from lockstep.scenarios import dump
from lockstep.workloads.compute_time import ComputeTime, compute_times
from lockstep.workloads.sizes import sizes
from lockstep.workloads.slowness import Cycle, Slowness, Spells, slowness
from tests.support import ROOT, pace
from tests.support.nightly import examples
from tests.support.scenarios import scenario

SECOND = {"time": {"distribution": "constant", "value": "1 s"}}
SPELLS = {"slowdown": 4, "spells": {"every": "30 s", "last": "5 s"}}
PERIODIC = {"slowdown": 2, "period": "60 s", "busy": "10 s", "offset": "5 s"}


def case(
    *items: dict, workers: int = 4, per_host: int = 1, seed: int = 3, compute: dict = SECOND
) -> Scenario:
    return scenario(
        cluster__workers=workers, cluster__workers_per_host=per_host, cluster__compute=compute,
        cluster__stragglers=list(items), seed=seed,
    )  # fmt: skip


def times(of: Scenario) -> list[ComputeTime]:
    return compute_times(of, sizes(of.workload))


# What is persistent


def test_a_persistent_slowdown_multiplies_each_draw_to_the_last_bit() -> None:
    compute = {"time": {"distribution": "lognormal", "mean": "30 ms", "cv": 0.2}}
    plain, slow = (times(case(*items, compute=compute)) for items in ([], [{"worker": 1, "slowdown": 3}]))
    for worker, factor in enumerate([1.0, 3.0, 1.0, 1.0]):
        drawn = [slow[worker].draw(n / 10) for n in range(100)]
        assert drawn == [plain[worker].draw(0.0) * factor for _ in range(100)]


def test_a_host_and_a_rack_are_slow_as_a_whole() -> None:
    by_host = times(case({"host": 1, "slowdown": 4}, workers=5, per_host=2))
    assert [time.draw(0.0) for time in by_host] == [1, 1, 4, 4, 1]
    star = times(case({"rack": 0, "slowdown": 2}))  # all its hosts are one group
    assert [time.draw(0.0) for time in star] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    "topology",
    [
        {"kind": "racks", "hosts_per_rack": 2},
        {"kind": "fat-tree", "hosts_per_leaf": 2},
        {"kind": "sites", "hosts": [2, 1]},
    ],
)
def test_a_rack_is_a_group_of_hosts(topology: dict) -> None:
    """Six workers on three hosts, the third of which is alone in its group."""
    items = [{"rack": 0, **SPELLS}, {"rack": 1, "slowdown": 3}]
    config = scenario(
        cluster__workers=6, cluster__workers_per_host=2, cluster__network={"topology": topology},
        cluster__compute=SECOND, cluster__stragglers=items,
    )  # fmt: skip
    seen = np.array([[time.draw(10.0 * k) for k in range(200)] for time in times(config)])
    assert (seen[:4] == seen[0]).all()
    assert 1 < seen[0].mean() < 4
    assert (seen[4:] == 3).all()


def test_nobody_else_has_a_slowness() -> None:
    assert slowness(case()) == {}
    assert list(slowness(case({"worker": 2, "slowdown": 3}))) == [2]


# By gradient


def test_occasional_slowdowns_have_their_mean_and_no_memory() -> None:
    p, f, n = 0.02, 10, 200_000
    time = times(case({"slowdown": f, "probability": p}))[0]
    drawn = np.array([time.draw(0.0) for _ in range(n)])
    assert set(drawn) == {1.0, float(f)}
    assert drawn.mean() == pytest.approx(1 + p * (f - 1), abs=5 * (f - 1) * math.sqrt(p * (1 - p) / n))
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 5 / math.sqrt(n)


def test_by_gradient_workers_are_independent_and_those_of_a_host_are_not() -> None:
    n = 20_000
    alone = times(case({"slowdown": 10, "probability": 0.3}))
    first, second = (np.array([time.draw(0.0) for _ in range(n)]) for time in alone[:2])
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(n)
    together = times(case({"host": 0, "slowdown": 10, "probability": 0.3}, per_host=2))
    a, b, c, _ = ([time.draw(0.0) for _ in range(n)] for time in together)
    assert a == b
    assert set(a) == {1.0, 10.0}
    assert set(c) == {1.0}


# Slow spells


def spells(seed: int = 0, slowdown: float = 4.0) -> Spells:
    return Spells(slowdown, 30.0, 5.0, np.random.default_rng(seed))


def turns(steps: Spells | Cycle, until: float, start: float = 0.0) -> list[tuple[float, float, float]]:
    """(from, to, slowdown), one after another."""
    found = []
    while start < until:
        value, end = steps.at(start)
        assert end > start
        found.append((start, end, value))
        start = end
    return found


def test_spells_are_slow_for_their_share_of_the_time_and_exponential() -> None:
    every, last, until = 30.0, 5.0, 1e6
    found = turns(spells(), until)
    slow = np.array([end - start for start, end, value in found if value == 4])
    normal = np.array([end - start for start, end, value in found if value == 1])
    assert all(a[2] != b[2] for a, b in pairwise(found))
    # The time average of a two-state chain has variance 2·π·(1 − π)·τ / T, τ = every·last / (every + last).
    share = last / (every + last)
    deviation = math.sqrt(2 * share * (1 - share) * (every * last / (every + last)) / until)
    assert slow.sum() / found[-1][1] == pytest.approx(share, abs=5 * deviation)
    for lengths, mean in ((slow, last), (normal, every)):
        assert lengths.mean() == pytest.approx(mean, rel=5 / math.sqrt(len(lengths)))
        # Kolmogorov–Smirnov against the exponential; above 2/√n in one of 1,500 samples
        ordered = np.sort(lengths)
        distance = abs(np.arange(len(ordered)) / len(ordered) - (1 - np.exp(-ordered / mean))).max()
        assert distance < 2 / math.sqrt(len(ordered))


@pytest.mark.parametrize("time", [0.0, 3.0, 100.0])
def test_spells_are_in_their_steady_state_from_the_start(time: float) -> None:
    n, share = 5000, 5 / 35
    slow = sum(spells(seed).at(time)[0] == 4 for seed in range(n)) / n
    assert slow == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / n))


@pytest.mark.slow
def test_workers_of_a_host_are_slow_at_the_same_instants_and_hosts_independently() -> None:
    # Seen every 100 s, more than 20 relaxation times apart, so one sight does not depend on the last.
    n = 20_000
    hosts = [{"host": h, **SPELLS} for h in (0, 1)]
    seen = np.array([[time.draw(100.0 * k) for k in range(n)] for time in times(case(*hosts, per_host=2))])
    assert (seen[0] == seen[1]).all()
    assert (seen[2] == seen[3]).all()
    assert abs(np.corrcoef(seen[0], seen[2])[0, 1]) < 5 / math.sqrt(n)
    each = np.array([[time.draw(100.0 * k) for k in range(n)] for time in times(case(SPELLS))[:2]])
    assert abs(np.corrcoef(each[0], each[1])[0, 1]) < 5 / math.sqrt(n)


def test_spells_do_not_depend_on_who_asks_first() -> None:
    instants = np.random.default_rng(1).uniform(0, 1e4, 500)
    forward, shuffled = spells(), spells()
    expected = {t: forward.at(t) for t in sorted(instants)}
    assert {t: shuffled.at(t) for t in instants} == expected


# Periodic interference and traces


@pytest.mark.parametrize(
    ("now", "work", "seconds"),
    [
        (0, 5, 5),  # ends as the interference begins
        (4, 3, 5),  # 1 s before it, then 2 s that take 4
        (5, 3, 6),  # all of it in it
        (14, 3, 3.5),  # 1 s of it does half a second
        (15, 3, 3),  # just after it
        (0, 50, 55),  # all through it
        (0, 60, 65),  # until the next one
        (0, 61, 67),  # and into it
        (60_000_004, 3, 5),  # the millionth time
        (0, 0, 0),
    ],
)
def test_periodic_interference_by_hand(now: float, work: float, seconds: float) -> None:
    slow = slowness(case({"worker": 1, **PERIODIC}))[1]
    assert slow.seconds(now, work) == pytest.approx(seconds, rel=1e-12)


def test_interference_begins_at_its_offset() -> None:
    late = slowness(case({"worker": 1, **PERIODIC, "offset": "100 s"}))[1]
    assert [late.seconds(now, 1) for now in (0, 40, 99, 100, 109, 110, 160)] == [1, 1, 1, 2, 1.5, 1, 2]


@pytest.mark.slow
@examples(3)
@given(
    period=st.floats(1e-3, 1e3),
    share=st.floats(0.01, 0.99),
    offset=st.floats(0, 1e3),
    start=st.floats(0, 1e6),
)
def test_a_cycle_never_stands_still(period: float, share: float, offset: float, start: float) -> None:
    """Whatever the rounding: the instants rise, and whole periods are slow for their share."""
    busy = share * period
    start = max(start, offset)
    found = turns(Cycle([(0.0, 3.0), (busy, 1.0)], period, offset), start + 20.5 * period, start)
    slow = [end - begin for begin, end, value in found if value == 3]
    # the first and the last may be cut; an instant is known to its rounding
    assert slow[1:-1] == pytest.approx([busy] * len(slow[1:-1]), abs=8 * math.ulp(found[-1][1]))
    assert 20 <= len(slow) <= 22


def trace(folder: Path, lines: str, **more: str) -> Scenario:
    """A scenario file with a trace beside it."""
    (folder / "slow.csv").write_text(lines)
    item = "{worker: 1, trace: slow.csv" + "".join(f", {key}: {value}" for key, value in more.items()) + "}"
    (folder / "case.yaml").write_text(
        "cluster: {workers: 2, compute: {time: {distribution: constant, value: 1 s}}, stragglers: ["
        f"{item}" + "]}\nworkload: {parameters: 10}\nstrategy: asynchronous\nstop: {steps: 3}\n"
    )
    return lockstep.load(folder / "case.yaml")


def test_a_trace_is_a_step_function_that_holds_its_last_value(tmp_path) -> None:
    slow = slowness(trace(tmp_path, "0, 1\n10, 3\n\n20, 0.5\n"))[1]
    for now, work, seconds in [(0, 10, 10), (0, 11, 13), (10, 3, 9), (12, 4, 8 + 0.5 * 4 / 3), (1e9, 4, 2)]:
        assert slow.seconds(now, work) == pytest.approx(seconds, rel=1e-12)


def test_a_trace_repeats(tmp_path) -> None:
    slow = slowness(trace(tmp_path, "0, 2\n10, 1\n", repeat="40 s"))[1]
    for now, work, seconds in [(0, 5, 10), (10, 30, 30), (10, 31, 32), (4_000_010, 31, 32)]:
        assert slow.seconds(now, work) == pytest.approx(seconds, rel=1e-12)


def test_a_dumped_scenario_finds_its_trace_and_is_the_same(tmp_path) -> None:
    loaded = trace(tmp_path, "0, 2\n10, 1\n", repeat="40 s")
    elsewhere = tmp_path / "results" / "scenario.yaml"
    elsewhere.parent.mkdir()
    items = [{"slowdown": 10, "probability": 0.02}, {"host": 1, **SPELLS}, {"rack": 0, **PERIODIC}]
    for one in (loaded, case({"worker": 3, "slowdown": 3}, *items)):
        elsewhere.write_text(dump(one))
        assert lockstep.load(elsewhere) == one


# Everything at once


def test_items_multiply() -> None:
    items = [
        {"worker": 1, "slowdown": 3},
        {"host": 0, "slowdown": 2},
        {"worker": 1, "slowdown": 5, "probability": 1},
        {"rack": 0, "slowdown": 7, "period": "60 s", "busy": "59 s"},
    ]
    drawn = [time.draw(0.0) for time in times(case(*items, per_host=2, compute=_constant("100 ms")))]
    assert drawn == pytest.approx([1.4, 21, 0.7, 0.7])


def _constant(value: str) -> dict:
    return {"time": {"distribution": "constant", "value": value}}


def together(seed: int) -> list[Spells | Cycle]:
    """Three things that vary, with instants that do not fit each other."""
    steps = [(0.0, 1.0), (3.3, 0.25), (4.1, 2.0)]
    return [spells(seed, slowdown=6.0), Cycle([(0.0, 3.0), (0.7, 1.0)], 2.9, 1.3), Cycle(steps, 11.7)]


@pytest.mark.slow
@examples(0.6)
@given(seed=st.integers(0, 50), now=st.floats(0, 500), work=st.floats(0.01, 40))
def test_the_integral_is_the_work(seed: int, now: float, work: float) -> None:
    """∫ dt / s(t) over the gradient, by the midpoint rule from the values of s alone, is its work."""
    varying = together(seed)
    seconds = Slowness(2.0, (), varying).seconds(now, work)
    n = 20_000
    h = seconds / n
    rates = np.array([1 / math.prod(s.at(now + (k + 0.5) * h)[0] for s in varying) for k in range(n)])
    # The rule is exact where s is constant; each change costs at most h times the jump of 1 / s (at most 4).
    changes = np.count_nonzero(np.diff(rates))
    assert rates.sum() * h == pytest.approx(2 * work, abs=4 * h * (changes + 2))


@pytest.mark.slow
@examples(3)
@given(
    seed=st.integers(0, 20),
    now=st.floats(0, 200),
    later=st.floats(0, 50),
    work=st.floats(0, 40) | st.just(0.0),
)
def test_what_begins_later_ends_later(seed: int, now: float, later: float, work: float) -> None:
    slow = Slowness(1.5, (), together(seed))
    first, second = (begin + slow.seconds(begin, work) for begin in (now, now + later))
    assert second >= first * (1 - 1e-13)  # sums of some hundred instants, rounded
    assert Slowness(1.5, (), together(seed)).seconds(now, work) == slow.seconds(now, work)


ITEMS = [
    {"worker": 3, "slowdown": 3},
    {"slowdown": 10, "probability": 0.1},
    {"host": 1, "slowdown": 4, "spells": {"every": "30 ms", "last": "20 ms"}},
    {"slowdown": 2, "period": "60 ms", "busy": "20 ms", "offset": "5 ms"},
]
GAMMA = {"time": {"distribution": "gamma", "mean": "20 ms", "cv": 0.5}}
SCRIPT = """
from tests.workloads.test_stragglers import fingerprint
print(fingerprint())
"""


def fingerprint() -> str:
    drawn = [[t.draw(0.03 * n) for n in range(200)] for t in times(case(*ITEMS, per_host=2, compute=GAMMA))]
    return hashlib.sha256(repr(drawn).encode()).hexdigest()


@pytest.mark.slow
def test_draws_are_the_same_in_another_process() -> None:
    environment = os.environ | {"PYTHONHASHSEED": "123", "PYTHONPATH": str(ROOT)}
    other = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == fingerprint()


@pytest.mark.real
@pytest.mark.alone
def test_both_engines_see_the_same_stragglers() -> None:
    """Every recorded gradient lasted as long as its draw for the instant at which it was begun."""
    config = case(*ITEMS, per_host=2, compute=GAMMA)
    for engine in (lockstep.simulate, lockstep.run):
        records = engine(config).records
        late, behind = [], []
        for worker, time in enumerate(times(config)):
            mine = records[(records["event"] == "gradient") & (records["node"] == worker)].sort_values(
                "start"
            )
            late += [row.end - row.start - time.draw(row.start) for row in mine.itertuples()]
            behind += np.cumsum(late[-len(mine) :]).tolist()
        assert len(late) == 20
        if engine is lockstep.simulate:
            assert late == pytest.approx([0] * 20, abs=1e-12)
        else:  # a sleep ends late, the next one is shorter by that: no worker is ever ahead of its draws
            assert min(behind) > -1e-6
            assert sorted(late)[10] < 5e-3 * pace.slowness()


def test_a_simulation_with_stragglers_is_a_function_of_the_seed() -> None:
    first, again = (lockstep.simulate(case(*ITEMS, per_host=2, compute=GAMMA)).records for _ in range(2))
    assert first.equals(again)
    assert not first.equals(lockstep.simulate(case(*ITEMS, per_host=2, compute=GAMMA, seed=4)).records)
