"""The suite's metrics on made-up measurements, where every one is known by hand."""

from typing import Any

import pandas as pd
import pytest

from lockstep.studies.accuracy_suite.comparing import compare
from lockstep.studies.accuracy_suite.point import FACTORS
from lockstep.studies.accuracy_suite.summary import ranking, summarise
from lockstep.studies.accuracy_suite.tables import END, between_markers, lines, markdown


def side(name: str, throughput: float | None, **more: Any) -> dict[str, Any]:
    """One run; more: workers, strategy, … or metrics."""
    factors = dict(zip(FACTORS, ("asynchronous", 4, 1, "network", "none"), strict=True))
    metrics: dict[str, Any] = {
        "throughput": throughput,
        "duration_s": 1.0,
        "samples": 32,
        "updates": 1,
        "dropped": 0,
        "step_time_s": 1.0,
        "staleness_mean": 0.0,
        "staleness": [0],
        "staleness_count": [10],
        "compute": 0.5,
        "network": 0.5,
        "wait": 0.0,
        "bottleneck": "",
        "busiest_link": "a",
        "utilisation": 0.5,
        "stretch": 1.0,
        "spread": None,
        "curve_s": [],
        "curve_loss": [],
        "curve_accuracy": [],
        "disturbed": False,
        "attempts": 1,
        "warnings": [],
        "error": None,
        "part": "rates",
    }
    return {"name": name, **factors, **metrics, **more}


def table(*pairs: tuple[dict[str, Any], dict[str, Any]]) -> pd.DataFrame:
    return compare([measured for measured, _ in pairs], [predicted for _, predicted in pairs])


def rates(errors: list[float], **more: Any) -> pd.DataFrame:
    pairs = [(side(f"p{i}", 100.0, **more), side(f"p{i}", 100.0 * (1 + e))) for i, e in enumerate(errors)]
    return table(*pairs)


def test_errors_are_relative_to_the_measurement_and_summed_up_by_size() -> None:
    found = summarise(rates([0.01, -0.02, 0.03, -0.04, 0.1]))["errors"]["held out"]["throughput_error"]
    assert found["median"] == pytest.approx(0.03)
    assert found["max"] == pytest.approx(0.1)
    assert found["p90"] == pytest.approx(0.04 + 0.6 * 0.06)
    assert found["mean"] == pytest.approx(0.016)
    assert found["points"] == 5


def test_the_largest_errors_come_by_name() -> None:
    worst = summarise(rates([0.01, -0.2, 0.03, 0.0, 0.1, -0.05]))["largest"]
    assert [row["name"] for row in worst] == ["p1", "p4", "p5", "p2", "p0"]
    assert worst[0]["throughput_error"] == pytest.approx(-0.2)


def test_one_and_two_workers_are_not_held_out() -> None:
    both = pd.concat([rates([0.5, 0.5], workers=2), rates([0.01, 0.01, 0.02], workers=8)], ignore_index=True)
    found = summarise(both)
    assert found["errors"]["held out"]["points"] == 3
    assert found["errors"]["held out"]["throughput_error"]["max"] == pytest.approx(0.02)
    assert found["errors"]["in calibration's range"]["throughput_error"]["max"] == pytest.approx(0.5)
    assert {name: level["points"] for name, level in found["by"]["workers"].items()} == {"8": 3}


def test_the_knee_is_a_prediction() -> None:
    rows = table(
        (side("a", 100.0), side("a", 101.0, stretch=2.1)),
        (side("b", 100.0), side("b", 103.0, stretch=1.9)),
        (side("c", 100.0), side("c", 104.0, stretch=None)),
    )
    by = summarise(rows)["by"]["queues"]
    assert by["past the knee"]["throughput_error"]["max"] == pytest.approx(0.01)
    assert by["before the knee"]["points"] == 2


def test_staleness_counts_where_there_is_any() -> None:
    stale = {"staleness": [0, 1, 2], "staleness_count": [5, 3, 2]}
    rows = table(
        (side("sync", 1.0), side("sync", 1.0)),
        (
            side("a", 1.0, staleness_mean=4.0, **stale),
            side("a", 1.0, staleness_mean=5.0, **(stale | {"staleness_count": [2, 3, 5]})),
        ),
        (side("b", 1.0, staleness_mean=0.1, **stale), side("b", 1.0, staleness_mean=0.2, **stale)),
    )
    assert rows["staleness_ks"].tolist() == pytest.approx([float("nan"), 0.3, 0.0], nan_ok=True)
    assert rows["staleness_error"].tolist() == pytest.approx([float("nan"), 0.25, 0.1], nan_ok=True)
    assert summarise(rows)["errors"]["held out"]["staleness_ks"]["median"] == pytest.approx(0.15)


def ranked(*strategies: tuple[str, float, float, int | None]) -> dict[str, Any]:
    """strategy, measured, predicted, shards."""
    pairs = [(side(s, m, strategy=s, shards=shards), side(s, p)) for s, m, p, shards in strategies]
    return ranking(table(*pairs))


def test_kendalls_tau_over_pairs_that_differ() -> None:
    found = ranked(
        ("a", 100, 100, 1), ("b", 120, 130, 1), ("c", 140, 125, 1)
    )  # b and c are the wrong way round
    assert (found["pairs"], found["tau"], found["wrong"]) == (3, pytest.approx(1 / 3), ["b, c"])
    assert ranked(("a", 100, 90, 1), ("b", 104, 80, 1)) == {"tau": None, "pairs": 0, "wrong": []}
    assert ranked(("a", 100, 90, 1), ("b", 200, 90, 1))["tau"] == 0.0


def test_kendalls_tau_is_scipys() -> None:
    from scipy.stats import kendalltau

    measured, predicted = [10.0, 20.0, 40.0, 80.0, 160.0], [11.0, 9.0, 50.0, 170.0, 160.0]
    found = ranked(*((str(i), m, p, 1) for i, (m, p) in enumerate(zip(measured, predicted, strict=True))))
    assert found["tau"] == pytest.approx(kendalltau(measured, predicted).statistic)


def test_only_strategies_on_the_same_cluster_are_ranked() -> None:
    assert ranked(("a", 100, 100, 1), ("b", 200, 150, 2))["pairs"] == 0
    assert ranked(("a", 100, 100, 1), ("b", 200, 150, 2), ("ring", 300, 300, None))["pairs"] == 2


def test_time_to_target_is_the_median_over_seeds() -> None:
    def curve(seconds: float) -> dict[str, Any]:
        """The loss is at the target of 0.5 half-way between two snapshots."""
        times = [0.5 * seconds, 0.75 * seconds, 1.25 * seconds]
        return {
            "curve_s": times,
            "curve_loss": [2.0, 0.75, 0.25],
            "curve_accuracy": [0, 0.5, 0.9],
            "part": "learning",
        }

    times = {"s1": (2.0, 2.2), "s2": (3.0, 3.3), "s3": (10.0, 4.0), "s4": (1.0, None)}
    pairs = [
        (
            side(seed, 1.0, **curve(a)),
            side(seed, 1.0, **(curve(b) if b else {"curve_s": [1.0], "curve_loss": [2.0]})),
        )
        for seed, (a, b) in times.items()
    ]
    found = summarise(table(*pairs))
    assert found["time_to_target"]["asynchronous"] == {
        "seeds": 4,
        "reached": 3,
        "by_one_side": 1,
        "predicted_s": pytest.approx(3.3),
        "measured_s": pytest.approx(3.0),
        "error": pytest.approx(0.1),
    }
    assert [found["errors"][row]["points"] for row in ("held out", "of these, learning")] == [4, 4]
    assert found["errors"]["of these, sizes only"]["points"] == 0
    assert found["bars"][-1]["met"] is False  # the prediction comes to the target in s4, the run does not
    assert summarise(table(*pairs[:2]))["bars"][-1]["met"] is True


def test_bars_are_met_or_missed() -> None:
    bars = {bar["what"]: bar["met"] for bar in summarise(rates([0.019, 0.02, 0.12]))["bars"]}
    assert bars["throughput error, median"] is True
    assert bars["throughput error, 90th percentile"] is False
    assert bars["throughput error, maximum"] is False
    assert bars["Kendall's τ of the strategies' ranking"] is None


def test_a_failure_is_no_metric() -> None:
    failed = side("p", None, error="RunFailed: it died") | {"throughput": None}
    rows = table(
        (failed, side("p", 1.0)), (side("q", 1.0), side("q", 1.0)), (side("r", None), side("r", 1.0))
    )
    found = summarise(rows)
    assert found["failed"] == {"p": "RunFailed: it died", "r": "nothing was applied"}
    assert found["errors"]["held out"]["points"] == 1
    assert summarise(table((failed, side("p", 1.0))))["points"] == 1


def test_the_page_gets_the_tables_between_its_markers() -> None:
    tables = markdown(summarise(rates([0.01])))
    begin, other = "<!-- tables: a test -->", f"<!-- tables: another -->\nits own\n{END}"
    page = between_markers(f"before\n{other}\n{begin}\nold\n{END}\nafter\n", tables, "a test")
    assert page == f"before\n{other}\n{begin}\n\n{tables}\n{END}\nafter\n"
    assert between_markers(page, tables, "a test") == page
    with pytest.raises(ValueError, match="the page has no"):
        between_markers("nothing", tables)


def test_what_stays_disturbed_is_in_no_headline() -> None:
    table = pd.concat([rates([0.01, 0.03]), rates([0.9], disturbed=True, attempts=3)], ignore_index=True)
    summary = summarise(table)
    assert summary["errors"]["held out"]["throughput_error"]["max"] == pytest.approx(0.03)
    assert (len(summary["disturbed"]), summary["runs"], summary["attempts"]) == (1, 3, 5)
    assert "2 disturbed runs made again or left out." in lines(summary)


def test_runs_are_told_where_all_stayed_disturbed_or_failed() -> None:
    for table in (rates([0.9, 0.8], disturbed=True), rates([0.1], error="it died")):
        assert not any("more run" in line for line in lines(summarise(table)))
    more = lines(summarise(rates([0.1, 0.2], runs=3, attempts=3)))
    assert "4 more runs, where chance asked for more than one a point." in more
