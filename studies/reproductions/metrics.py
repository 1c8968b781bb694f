"""What is kept of a run: a few numbers, from the table of its records."""

from math import isfinite, log

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import lockstep
from lockstep import Result
from lockstep.scenarios import Scenario

Array = NDArray[np.float64]
CHANCE = log(10)  # the loss of a uniform guess among ten classes


def learned(
    scenario: Scenario, target: float | None = None, result: Result | None = None
) -> dict[str, float]:
    """Run a scenario in which digits are learned: the metrics by which strategies are compared.

    `loss` and `error` (%) of the final parameters on held-out data; `staleness`, mean; `updates per s`;
    `samples per s`. With a `target` loss, `seconds` and `updates` until it was reached.
    """
    result = result or lockstep.simulate(scenario)
    metrics, curve = result.metrics, result.curve
    found = {
        "loss": bounded(metrics["loss"]),
        "error": 100 * (1 - metrics["accuracy"]),
        "staleness": metrics["staleness"]["mean"],
        "updates per s": metrics["updates_per_s"],
        "samples per s": metrics["throughput"],
    }
    if target is not None:
        found |= {"seconds": until(target, curve, "time"), "updates": until(target, curve, "version")}
    return found


def bounded(loss: float | None) -> float:
    """A loss, but no more than that of chance: how far a run that diverged has got says nothing."""
    return CHANCE if loss is None or not isfinite(loss) else min(loss, CHANCE)


def until(target: float, curve: pd.DataFrame, column: str) -> float:
    """The `time` (s) or `version` at which the held-out loss came down to the target; the end if it did not.

    Between two snapshots the logarithm of the loss is taken to be linear, and it starts at that of chance.
    """
    losses = np.array([CHANCE, *map(bounded, curve["loss"])])
    return crossing(np.concatenate([[0.0], curve[column]]), np.log(losses / target))


def crossing(places: Array, above: Array) -> float:
    """Where values at rising places, linear in between, first come down to 0; the last place if never."""
    down = np.flatnonzero(above <= 0)
    if not len(down):
        return float(places[-1])
    i = down[0]
    return float(np.interp(0.0, -above[max(i - 1, 0) : i + 1], places[max(i - 1, 0) : i + 1]))
