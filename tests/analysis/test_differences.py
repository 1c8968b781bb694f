"""What differs between runs: intervals are SciPy's, steps add up, points find their like."""

from typing import Any

import pandas as pd
import pytest
from scipy.stats import ttest_ind, ttest_rel

from lockstep.analysis.differences import Side, differences
from lockstep.scenarios import ScenarioError

FIRST, SECOND = [100.0, 104.0, 99.0, 103.0], [90.0, 95.0, 91.0, 93.0]


def runs(throughputs: list[float], seeds: list[int], **more: Any) -> pd.DataFrame:
    shares = {"breakdown.compute": 0.5, "breakdown.network": 0.3, "breakdown.wait": 0.2}
    keys = {"cluster.workers": 8, "workload.batch_size": 32, "strategy.name": "ssp", "engine": "simulator"}
    return pd.DataFrame({"throughput": throughputs, "seed": seeds}).assign(**keys, **shares, **more)


def pair(first: pd.DataFrame, second: pd.DataFrame) -> Any:
    (found,) = differences(Side("A", first), Side("B", second))
    return found


def test_runs_with_the_same_seeds_are_compared_one_by_one() -> None:
    order = [2, 0, 3, 1]
    shuffled = runs([SECOND[place] for place in order], order)
    found = pair(runs(FIRST, [0, 1, 2, 3]), shuffled).metrics["throughput"]
    expected = ttest_rel(SECOND, FIRST).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.certain


def test_runs_with_other_seeds_are_compared_by_their_means() -> None:
    found = pair(runs(FIRST, [0, 1, 2, 3]), runs(SECOND[:3], [7, 8, 9])).metrics["throughput"]
    expected = ttest_ind(SECOND[:3], FIRST, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_what_chance_alone_may_be_is_no_difference() -> None:
    found = pair(runs(FIRST, [0, 1, 2, 3]), runs(FIRST[::-1], [0, 1, 2, 3])).metrics["throughput"]
    assert found.change == 0
    noisy = pair(runs([100, 120], [0, 1]), runs([121, 102], [0, 1]))
    assert not noisy.metrics["throughput"].certain
    assert noisy.same


def test_one_run_each_leaves_no_interval() -> None:
    found = pair(runs([100], [0]), runs([90], [1])).metrics["throughput"]
    assert (found.low, found.high, found.relative) == (None, None, pytest.approx(-0.1))
    assert found.certain


def test_the_parts_of_a_step_are_the_step() -> None:
    """8 workers make 8 × 32 samples a step; two stages make one replica of two workers."""
    found = pair(runs([100], [0]), runs([80], [0], **{"parallelism.pipeline": 2.0}))
    for side, step in ((0, 8 * 32 / 100), (1, 4 * 32 / 80)):
        assert sum(values[side] for values in found.step_s.values()) == pytest.approx(step)
    assert found.step_s["network"] == pytest.approx((0.3 * 2.56, 0.3 * 1.6))
    assert found.keys == {"parallelism.pipeline": (None, 2.0)}


def test_points_of_sweeps_find_their_like() -> None:
    table = pd.concat([runs([n * 10.0], [0]).assign(**{"cluster.workers": n}) for n in (2, 4, 8)])
    other = pd.concat([runs([n * 11.0], [0]).assign(**{"cluster.workers": n}) for n in (8, 4, 16)])
    found = differences(Side("A", table), Side("B", other))
    assert [each.where for each in found] == [{"cluster.workers": 4}, {"cluster.workers": 8}]
    assert [each.metrics["throughput"].relative for each in found] == pytest.approx([0.1, 0.1])
    against_one = differences(Side("A", table), Side("B", runs([50], [0])))
    assert [each.where["cluster.workers"] for each in against_one] == [2, 4, 8]
    with pytest.raises(ScenarioError, match=r"no run of it has the cluster\.workers of one of 'A'"):
        differences(Side("A", table[:2]), Side("B", pd.concat([other[:1], other[2:]])))


def test_runs_that_failed_do_not_count() -> None:
    table = runs([100, 1], [0, 1], status=["ok", "failed"])
    assert pair(table, runs([100], [0])).metrics["throughput"].first == 100
    with pytest.raises(ScenarioError, match="no run in it has ended well"):
        pair(table[1:], runs([100], [0]))


def test_what_rounding_leaves_is_no_difference() -> None:
    """Computing takes all of both steps, but for 1e-17 of them in which one seems to wait."""
    shares = {"breakdown.compute": 1.0, "breakdown.update": 0.0, "breakdown.network": 0.0}
    runs = [
        pd.DataFrame([shares | {"breakdown.wait": wait, "throughput": rate, "seed": 1, "cluster.workers": 4,
                                "workload.batch_size": 32, "status": "ok"}])
        for wait, rate in ((0.0, 100.0), (8e-17, 100.0 * (1 + 1e-15)))
    ]  # fmt: skip
    (pair,) = differences(Side("A", runs[0]), Side("B", runs[1]))
    assert pair.same
    assert {b - a for a, b in pair.step_s.values()} == {0.0}
