"""All kinds of pictures by name, and what each takes of some runs."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from lockstep.analysis.plots.against import against
from lockstep.analysis.plots.breakdown import breakdown
from lockstep.analysis.plots.critical import critical
from lockstep.analysis.plots.curves import learning
from lockstep.analysis.plots.decision import decision
from lockstep.analysis.plots.gantt import gantt
from lockstep.analysis.plots.heatmap import heat_map
from lockstep.analysis.plots.pareto import pareto
from lockstep.analysis.plots.pipeline import pipeline
from lockstep.analysis.plots.predicted import predicted_against_measured
from lockstep.analysis.plots.scaling import speedup, throughput
from lockstep.analysis.plots.series import Unfit
from lockstep.analysis.plots.staleness import staleness_histogram, staleness_quantiles
from lockstep.analysis.plots.stragglers import stragglers
from lockstep.analysis.plots.target import time_to_target
from lockstep.analysis.plots.utilisation import link_utilisation
from lockstep.analysis.runs import Runs
from lockstep.scenarios import ScenarioError

Draw = Callable[..., Figure]


def _table(draw: Draw) -> Draw:
    return lambda runs, **options: draw(runs.table, **options)


def _results(draw: Draw, **fixed: Any) -> Draw:
    return lambda runs, **options: draw(runs.results, **fixed, **options)


def _metric(table: pd.DataFrame, x: str | None = None, y: str | None = None, by: str | None = None) -> Figure:
    if y is None:
        raise Unfit("say which with --y METRIC")
    return against(table, y, x, by)


# Name: how to draw it from Runs, and the options that it has.
KINDS: dict[str, tuple[Draw, tuple[str, ...]]] = {
    "throughput": (_table(throughput), ("x", "by")),
    "speedup": (_table(speedup), ("x", "by")),
    "time-to-target": (_table(time_to_target), ("x", "by")),
    "loss-time": (_results(learning, against="time"), ("y", "by")),
    "loss-updates": (_results(learning, against="updates"), ("y", "by")),
    "staleness": (_table(staleness_histogram), ("by",)),
    "staleness-quantiles": (_table(staleness_quantiles), ("x", "by")),
    "breakdown": (_table(breakdown), ("by",)),
    "utilisation": (_results(link_utilisation), ()),
    "gantt": (_results(gantt), ()),
    "critical-path": (_results(critical), ()),
    "pipeline": (_results(pipeline), ()),
    "stragglers": (_table(stragglers), ("x", "y", "by")),
    "heat-map": (_table(heat_map), ("x", "y", "by")),
    "decision": (_table(decision), ("x", "y", "by")),
    "pareto": (_table(pareto), ("by",)),
    "predicted": (_table(predicted_against_measured), ()),
    "metric": (_table(_metric), ("x", "y", "by")),
}


def draw(kind: str, runs: Runs, options: Mapping[str, str]) -> Figure:
    """One picture. `options`: x, y and by, where given; raises Unfit if the runs cannot carry it.

    Raises ScenarioError for a kind, a key or a metric that does not exist, and lists those that do.
    """
    if kind not in KINDS:
        raise ScenarioError(f"no kind {kind!r} (kinds: {', '.join(KINDS)})", key="--kind")
    function, takes = KINDS[kind]
    try:
        return function(runs, **{name: value for name, value in options.items() if name in takes})
    except Unfit as reason:
        raise Unfit(reason.problem, key=reason.key or kind) from None


def pictures(runs: Runs, options: Mapping[str, str]) -> tuple[dict[str, Figure], dict[str, str]]:
    """Every picture that the runs can carry, and why the others were left out: both by kind."""
    figures: dict[str, Figure] = {}
    left_out: dict[str, str] = {}
    for kind in KINDS:
        if kind == "metric":
            continue  # which one has to be asked for
        try:
            figures[kind] = draw(kind, runs, options)
        except Unfit as reason:
            left_out[kind] = reason.problem
    return figures, left_out
