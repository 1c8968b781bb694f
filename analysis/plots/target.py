"""How long it takes to reach the target accuracy, and what that costs in machines."""

import pandas as pd
from matplotlib.figure import Figure

from lockstep.analysis.plots.against import against
from lockstep.analysis.plots.series import Unfit
from lockstep.analysis.plots.words import label, scale


def time_to_target(table: pd.DataFrame, x: str | None = None, by: str | None = None) -> Figure:
    """Time to the target accuracy: bars, or against a key that varies; what did not reach it is said."""
    if "time_to_target_s" not in table or not table["time_to_target_s"].notna().any():
        raise Unfit("no run has reached a target; give the scenario a target in stop that can be")
    target = target_of(table)
    text = label("time_to_target_s", scale("time_to_target_s", table["time_to_target_s"])).replace(
        "target", target
    )
    return against(table, "time_to_target_s", x, by, title=f"Time to {target}", y_label=text)


def target_of(table: pd.DataFrame) -> str:
    """What the runs wait for: "80% accuracy", "loss ≤ 0.3"; "the target" where they differ."""
    said = set()
    for row in table.to_dict("records"):
        accuracy, metric = row.get("stop.target_accuracy"), row.get("stop.target.metric")
        if accuracy is not None and accuracy == accuracy:
            said.add(f"{100 * accuracy:.3g}% accuracy")
        elif isinstance(metric, str):
            least, most = row.get("stop.target.at_least"), row.get("stop.target.at_most")
            bound = f"≥ {least:.4g}" if least is not None and least == least else f"≤ {most:.4g}"
            said.add(f"{metric} {bound}")
    return said.pop() if len(said) == 1 else "the target"
