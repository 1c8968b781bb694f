"""The suite's points: which there are, and that every prefix of their order is an even sample."""

import os
import subprocess
import sys
from collections import Counter
from itertools import combinations, islice

import numpy as np
import pytest

import lockstep
from lockstep.scenarios import Scenario
from lockstep.studies.accuracy_suite.grid import (
    REGIMES,
    SHARDS,
    STRAGGLERS,
    STRATEGIES,
    USUAL,
    WORKERS,
    Cables,
    grid,
)
from lockstep.studies.accuracy_suite.learning import learning
from lockstep.studies.accuracy_suite.order import DEFAULT, suite
from lockstep.studies.accuracy_suite.point import FACTORS, Point
from lockstep.studies.accuracy_suite.suite import chosen

PAIRS = list(combinations(FACTORS, 2))


def pairs(points: list[Point]) -> Counter[tuple[object, ...]]:
    return Counter((a, b, p.factors[a], p.factors[b]) for p in points if p.part == "rates" for a, b in PAIRS)


@pytest.fixture(scope="module")
def ordered() -> list[Point]:
    """All points: here, because it takes seconds that not every process with tests has to spend."""
    return list(suite())


def test_every_point_comes_once(ordered: list[Point]) -> None:
    assert sorted(p.name for p in ordered) == sorted(p.name for p in [*grid(), *learning()])
    assert len({p.name for p in ordered}) == len(ordered) == 1368 + 30
    assert set(STRATEGIES) == {p.factors["strategy"] for p in ordered}


@pytest.mark.parametrize("length", [100, 150, 300, 700])
def test_prefixes_are_even(length: int, ordered: list[Point]) -> None:
    rates = [p for p in ordered[:length] if p.part == "rates"]
    for factor, levels in (("workers", WORKERS), ("regime", REGIMES), ("stragglers", STRAGGLERS)):
        counts = Counter(p.factors[factor] for p in rates)
        assert min(counts[level] for level in levels) > 0.6 * len(rates) / len(levels), counts


def test_the_default_covers_the_pairs_that_there_are(ordered: list[Point]) -> None:
    possible, covered = pairs(grid()), pairs(ordered[:DEFAULT])
    assert len(covered) > 0.97 * len(possible)
    assert set(pairs(ordered[:400])) == set(possible)


def test_rankings_have_pairs(ordered: list[Point]) -> None:
    blocks = Counter(
        tuple(p.factors[f] for f in ("workers", "regime", "stragglers")) for p in ordered[:DEFAULT]
    )
    assert sum(count >= len(STRATEGIES) for count in blocks.values()) >= 4


def test_the_default_has_three_seeds_of_everything_that_learns(ordered: list[Point]) -> None:
    names = {p.name for p in ordered[:DEFAULT]}
    assert {p.name for p in learning()[:18]} <= names


@pytest.mark.slow
def test_no_chance_is_in_it() -> None:
    code = (
        "from itertools import islice; from lockstep.studies.accuracy_suite.order import suite; "
        "print(*(p.key for p in islice(suite(), 60)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [p.key for p in islice(suite(), 60)]


def test_points_are_scenarios_that_both_engines_take(ordered: list[Point]) -> None:
    for each in ordered[::7]:
        lockstep.check(each.scenario)
        assert each.scenario.name == each.name
    for each in ordered[:5]:
        assert each.scenario == Scenario.model_validate(each.document)


def test_shards_are_for_servers_only() -> None:
    shards = {p.factors["strategy"]: set[object]() for p in grid()}
    for each in grid():
        shards[each.factors["strategy"]].add(each.factors["shards"])
    assert shards["asynchronous"] == set(SHARDS)
    assert shards["backup-workers"] == {1}
    assert shards["gossip"] == {None}


@pytest.mark.parametrize("seed", range(20))
def test_drawn_cables_are_between_the_testbeds_limits(seed: int) -> None:
    cables = Cables.drawn(np.random.default_rng(seed))
    assert 20 <= cables.mbit_per_s <= 80
    assert 0.0099 < cables.transfer_s < 0.0701


def test_a_fifth_of_the_points_is_on_the_cables_that_the_campaign_has_drawn(ordered: list[Point]) -> None:
    drawn = Cables(33.3, 47_111)
    points = list(islice(suite(drawn), DEFAULT))
    own = [p for p in points if p.name.endswith("-at-33.3mbit-47111")]
    assert len(own) == DEFAULT // 5
    assert {p.scenario.cluster.network.bandwidth for p in own} == {33.3e6 / 8}
    assert {p.factors["strategy"] for p in own} == set(STRATEGIES)
    usual = {p.factors["regime"] for p in points if p not in own}
    assert usual.isdisjoint(p.factors["regime"] for p in own)  # they are no cluster of the ranking's
    assert {p.name for p in points if p not in own} <= {p.name for p in ordered}


def test_a_point_on_drawn_cables_is_found_by_its_name() -> None:
    point = next(p for p in suite(Cables(20, 9000)) if p.name.endswith("-at-20mbit-9000"))
    assert chosen(point.name) == point
    assert chosen(point.name).document["cluster"]["network"] == {"bandwidth": "20 Mbit/s"}


def test_twice_the_size_at_twice_the_bandwidth_takes_as_long() -> None:
    assert Cables(100, 100_000).transfer_s == USUAL.transfer_s == pytest.approx(0.0335, rel=1e-3)
