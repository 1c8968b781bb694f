"""Pictures of what runs did, made with matplotlib: each a function that returns a Figure (docs/plots.md)."""

from analysis.plots.against import against
from analysis.plots.breakdown import breakdown
from analysis.plots.comparison import predicted_and_measured
from analysis.plots.curves import learning
from analysis.plots.gantt import gantt
from analysis.plots.heatmap import heat_map
from analysis.plots.kinds import KINDS, draw, pictures
from analysis.plots.pareto import pareto
from analysis.plots.predicted import predicted_against_measured
from analysis.plots.scaling import speedup, throughput
from analysis.plots.series import Unfit
from analysis.plots.staleness import staleness_histogram, staleness_quantiles
from analysis.plots.stragglers import stragglers
from analysis.plots.style import MEASURED, PREDICTED, save
from analysis.plots.target import time_to_target
from analysis.plots.utilisation import link_utilisation

__all__ = [
    "KINDS", "MEASURED", "PREDICTED", "Unfit", "against", "breakdown", "draw", "gantt", "heat_map",
    "learning", "link_utilisation", "pareto", "pictures", "predicted_against_measured",
    "predicted_and_measured", "save", "speedup", "staleness_histogram", "staleness_quantiles", "stragglers",
    "throughput", "time_to_target",
]  # fmt: skip
