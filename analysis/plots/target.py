"""How long it takes to reach the target accuracy, and what that costs in machines."""

import pandas as pd
from matplotlib.figure import Figure

from lockstep.analysis.plots.against import against
from lockstep.analysis.plots.series import Unfit


def time_to_target(table: pd.DataFrame, x: str | None = None, by: str | None = None) -> Figure:
    """Time to the target accuracy: bars, or against a key that varies; what did not reach it is said."""
    if "time_to_target_s" not in table or not table["time_to_target_s"].notna().any():
        raise Unfit("no run has reached a target; give the scenario a stop.target_accuracy that can be")
    return against(table, "time_to_target_s", x, by)
