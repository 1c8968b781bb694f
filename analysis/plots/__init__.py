"""Pictures of what runs did, made with matplotlib: each a function that returns a Figure (docs/plots.md)."""

from lockstep.analysis.plots.against import against
from lockstep.analysis.plots.breakdown import breakdown
from lockstep.analysis.plots.comparison import predicted_and_measured
from lockstep.analysis.plots.critical import critical
from lockstep.analysis.plots.curves import learning
from lockstep.analysis.plots.decision import decision
from lockstep.analysis.plots.gantt import gantt
from lockstep.analysis.plots.heatmap import heat_map
from lockstep.analysis.plots.kinds import KINDS, draw, pictures
from lockstep.analysis.plots.pareto import pareto
from lockstep.analysis.plots.pipeline import pipeline
from lockstep.analysis.plots.predicted import predicted_against_measured
from lockstep.analysis.plots.scaling import speedup, throughput
from lockstep.analysis.plots.series import Unfit
from lockstep.analysis.plots.staleness import staleness_histogram, staleness_quantiles
from lockstep.analysis.plots.stragglers import stragglers
from lockstep.analysis.plots.style import MEASURED, PREDICTED, save
from lockstep.analysis.plots.target import time_to_target
from lockstep.analysis.plots.utilisation import link_utilisation
from lockstep.analysis.plots.waterfall import waterfall, what_if

__all__ = [
    "KINDS", "MEASURED", "PREDICTED", "Unfit", "against", "breakdown", "critical", "decision", "draw",
    "gantt", "heat_map", "learning", "link_utilisation", "pareto", "pictures", "pipeline",
    "predicted_against_measured", "predicted_and_measured", "save", "speedup", "staleness_histogram",
    "staleness_quantiles", "stragglers", "throughput", "time_to_target", "waterfall", "what_if",
]  # fmt: skip
