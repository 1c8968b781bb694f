"""Sums up a table of comparisons: errors by group, the ranking of strategies, and the bars."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lockstep.validation import relative_error

Bar = dict[str, Any]
DIFFERENT = 0.05  # strategies whose measured throughputs differ by less are not ranked
GROUPS: dict[str, Callable[[pd.DataFrame], "pd.Series[Any]"]] = {
    "regime": lambda rows: rows["regime"],
    "queues": lambda rows: rows["past_the_knee"].map({True: "past the knee", False: "before the knee"}),
    "strategy": lambda rows: rows["strategy"],
    "workers": lambda rows: rows["workers"].astype(str),
    "stragglers": lambda rows: rows["stragglers"],
}


def summarise(table: pd.DataFrame) -> dict[str, Any]:
    """What `summary.json` has: of `compare`'s table; only points of sizes are ranked."""
    whole, failed = table[table["error"].isna()], table[table["error"].notna()]
    disturbed = whole[whole["disturbed"].astype(bool)] if len(whole) else whole
    whole = whole.drop(disturbed.index)  # a measurement that says nothing of the prediction
    warned = whole[whole["warnings"].map(len) > 0] if len(whole) else whole
    rates, learners, split = (whole[whole["part"] == part] for part in ("rates", "learning", "pipelines"))
    held_out = whole[whole["held_out"]]
    errors = {
        "held out": statistics(held_out),
        "of these, sizes only": statistics(rates[rates["held_out"]]),
        "of these, learning": statistics(learners[learners["held_out"]]),
        "in calibration's range": statistics(whole[~whole["held_out"]]),
    }
    listed: list[Bar] = []
    ranks, targets = ranking(rates[rates["held_out"]]), time_to_target(learners)
    if len(split):
        errors["of these, split models"] = pipes = statistics(split[split["held_out"]])
        listed = pipeline_bars(pipes)
    if len(split) < len(whole) or not len(whole):
        listed = [*bars(errors["held out"], ranks, targets), *listed]
    groups = {
        name: {str(level): statistics(rows) for level, rows in held_out.groupby(of(held_out), sort=False)}
        for name, of in (GROUPS if len(held_out) else {}).items()
    }
    return {
        "schema": 1,
        "points": len(table),
        "failed": dict(zip(failed["name"], failed["error"], strict=True)),
        "disturbed": [*disturbed["name"]],
        **{key: int(table[key].sum()) if key in table else 0 for key in ("runs", "attempts")},
        "warned": {row["name"]: row["warnings"] for _, row in warned.iterrows()},
        "errors": errors,
        "by": groups,
        "largest": largest(held_out),
        "ranking": ranks,
        "time_to_target": targets,
        "bars": listed,
    }


def statistics(rows: pd.DataFrame) -> dict[str, Any]:
    """Of the errors' absolute values median, 90th percentile and maximum, and of the signed ones the mean."""
    found: dict[str, Any] = {"points": len(rows)}
    for metric in ("throughput_error", "step_time_error", "staleness_error", "staleness_ks"):
        errors = rows[metric].dropna().to_numpy(float) if len(rows) else np.empty(0)
        found[metric] = _of(errors)
    return found


def _of(errors: np.ndarray) -> dict[str, Any] | None:
    if not len(errors):
        return None
    size = np.abs(errors)
    return {
        "points": len(errors),
        "median": float(np.median(size)),
        "p90": float(np.quantile(size, 0.9)),
        "max": float(size.max()),
        "mean": float(errors.mean()),
    }


def largest(rows: pd.DataFrame, count: int = 5) -> list[dict[str, Any]]:
    """The points whose throughput is predicted worst, the worst first (samples/s)."""
    if not len(rows):
        return []
    order = rows["throughput_error"].abs().sort_values(ascending=False, kind="stable").index
    columns = ["name", "predicted_throughput", "measured_throughput", "throughput_error"]
    worst = rows.loc[order[:count], columns].to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in worst]


def ranking(rows: pd.DataFrame) -> dict[str, Any]:
    """Kendall's τ over pairs of strategies on the same cluster whose measured throughputs differ.

    That is by more than 5% of the greater. Strategies without a server are compared with all numbers of
    shards. τ = (pairs in the right order − pairs in the wrong one) ÷ pairs; None without any.
    """
    pairs = score = 0
    wrong: list[str] = []
    if len(rows):
        for _, block in rows.groupby(["workers", "regime", "stragglers"], sort=False):
            for (_, a), (_, b) in combinations(block.iterrows(), 2):
                if a["shards"] != b["shards"] and not (pd.isna(a["shards"]) or pd.isna(b["shards"])):
                    continue
                real = _apart(a["measured_throughput"], b["measured_throughput"])
                if abs(real) <= DIFFERENT:
                    continue
                said = a["predicted_throughput"] - b["predicted_throughput"]
                pairs += 1
                score += int(np.sign(said * real))
                if said * real <= 0:
                    wrong.append(f"{a['name']}, {b['name']}")
    return {"tau": score / pairs if pairs else None, "pairs": pairs, "wrong": wrong}


def _apart(a: float, b: float) -> float:
    """How far two throughputs are apart, relative to the greater."""
    return (a - b) / max(a, b)


def time_to_target(rows: pd.DataFrame) -> dict[str, Any]:
    """Of each strategy that learned: the median time to the target over seeds, predicted and measured (s).

    A seed counts where both sides reached it; one that a single side reached misses the bar.
    """
    sides = ["predicted_time_to_target_s", "measured_time_to_target_s"]
    found: dict[str, Any] = {}
    for strategy, its in rows.groupby("strategy", sort=False) if len(rows) else ():
        both = its.dropna(subset=sides)
        a, b = (
            float(both[f"{side}_time_to_target_s"].median()) if len(both) else None
            for side in ("predicted", "measured")
        )
        found[str(strategy)] = {
            "seeds": len(its),
            "reached": len(both),
            "by_one_side": len(its.dropna(how="all", subset=sides)) - len(both),
            "predicted_s": a,
            "measured_s": b,
            "error": relative_error(a, b),
        }
    return found


def bars(held_out: Mapping[str, Any], ranks: Mapping[str, Any], targets: Mapping[str, Any]) -> list[Bar]:
    """Each bar with its value: whether it is met, or None where nothing was measured for it."""
    worst = max((abs(each["error"]) for each in targets.values() if each["error"] is not None), default=None)
    of = partial(_statistic, held_out)
    found = [
        _bar("throughput error, median", of("throughput_error", "median"), 0.02),
        _bar("throughput error, 90th percentile", of("throughput_error", "p90"), 0.05),
        _bar("throughput error, maximum", of("throughput_error", "max"), 0.10),
        _bar("mean staleness error, median", of("staleness_error", "median"), 0.05),
        _bar("mean staleness error, maximum", of("staleness_error", "max"), 0.05),
        _bar("staleness KS distance, median", of("staleness_ks", "median"), 0.08),
        _bar("Kendall's τ of the strategies' ranking", ranks["tau"], 0.95, at_least=True),
        _bar("time to target loss, worst strategy's error (median over seeds)", worst, 0.10),
    ]
    if any(each["by_one_side"] for each in targets.values()):
        found[-1]["met"] = False
    return found


def pipeline_bars(held_out: Mapping[str, Any]) -> list[Bar]:
    """Likewise, of split models."""
    of = partial(_statistic, held_out)
    return [
        _bar("step time error of split models, median", of("step_time_error", "median"), 0.03),
        _bar("step time error of split models, maximum", of("step_time_error", "max"), 0.10),
    ]


def _statistic(errors: Mapping[str, Any], metric: str, statistic: str) -> float | None:
    found = errors[metric]
    return None if found is None else float(found[statistic])


def _bar(what: str, value: float | None, bar: float, at_least: bool = False) -> Bar:
    met = None if value is None else (value >= bar if at_least else value <= bar)
    return {"what": what, "value": value, "bar": bar, "at_least": at_least, "met": met}
