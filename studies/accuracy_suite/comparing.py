"""Predicted against measured: a row for each point, from which everything else is computed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.units import shown
from lockstep.studies.accuracy_suite.learning import TARGET_LOSS
from lockstep.studies.accuracy_suite.point import FACTORS
from lockstep.validation import ks_distance, relative_error

CALIBRATED = 2  # workers: calibration uses runs of so many at most; all others are held out
KNEE = 2.0  # times as long as alone a message is under way, predicted: above that queues have formed
_METRICS = (
    *("throughput", "duration_s", "samples", "updates", "dropped", "step_time_s"),
    *("staleness_mean", "staleness", "staleness_count", "compute", "network", "wait", "bottleneck"),
    *("curve_s", "curve_loss", "curve_accuracy", "time_to_target_s"),
)

Row = Mapping[str, Any]


def compare(measured: Sequence[Row], predicted: Sequence[Row]) -> pd.DataFrame:
    """One row a point, in the order of the measurements. Errors: (predicted − measured) ÷ measured.

    Of mean staleness: ÷ the measured mean or one version, if that is more, for a mean may be near 0.
    A point of which a side failed has its `error`, and no metrics.
    """
    by_name = {row["name"]: row for row in predicted}
    if unknown := [row["name"] for row in measured if row["name"] not in by_name]:
        raise ScenarioError(f"{shown(unknown[0])} was measured, and not predicted")
    return pd.DataFrame([_row(m, by_name[m["name"]]) for m in measured])


def _row(m: Row, p: Row) -> dict[str, Any]:
    about = {key: m[key] for key in ("name", "part", *FACTORS)} | {"held_out": m["workers"] > CALIBRATED}
    error = m["error"] or p["error"]
    if error or m["throughput"] is None or p["throughput"] is None:
        return about | {"error": error or "nothing was applied"}
    sides = {
        "predicted": {**p, "time_to_target_s": _time_to_target(p)},
        "measured": {**m, "time_to_target_s": _time_to_target(m)},
    }
    a, b = sides["predicted"], sides["measured"]
    metrics = {f"{side}_{key}": values[key] for key in _METRICS for side, values in sides.items()}
    stale = any(max(map(abs, side["staleness"]), default=0) > 0 for side in (a, b))
    return {
        **about,
        "error": None,
        "past_the_knee": (p["stretch"] or 1.0) > KNEE,
        "busiest_link": p["busiest_link"],
        "utilisation": p["utilisation"],
        "stretch": p["stretch"],
        "spread": p["spread"],
        **metrics,
        "throughput_error": relative_error(a["throughput"], b["throughput"]),
        "step_time_error": relative_error(a["step_time_s"], b["step_time_s"]),
        "stale": stale,
        "staleness_error": _staleness_error(a["staleness_mean"], b["staleness_mean"]) if stale else None,
        "staleness_ks": ks_distance(_histogram(a), _histogram(b)) if stale else None,
        "target_error": relative_error(a["time_to_target_s"], b["time_to_target_s"]),
        "disturbed": bool(m.get("disturbed")),  # older campaigns do not say
        "runs": int(m.get("runs") or 1),
        "attempts": int(m.get("attempts") or 1),
        "warnings": list(m["warnings"]),
    }


def _staleness_error(predicted: float | None, measured: float | None) -> float | None:
    if predicted is None or measured is None:
        return None
    return (predicted - measured) / max(abs(measured), 1.0)


def _histogram(side: Row) -> dict[str, int]:
    return {
        str(value): count for value, count in zip(side["staleness"], side["staleness_count"], strict=True)
    }


def _time_to_target(side: Row) -> float | None:
    """When the held-out loss first came down to the target (s), on straight lines between snapshots."""
    times, losses = np.array(side["curve_s"], float), np.array(side["curve_loss"], float)
    below = np.flatnonzero(losses <= TARGET_LOSS)
    if not len(below):
        return None
    at = int(below[0])
    if at == 0:
        return float(times[0])
    pair = slice(at - 1, at + 1)
    return float(np.interp(-TARGET_LOSS, -losses[pair], times[pair]))
