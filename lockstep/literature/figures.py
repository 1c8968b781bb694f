"""What is kept of a run: a few numbers, from the table of its records."""

from math import isfinite, log

import numpy as np
import pandas as pd

import lockstep
from lockstep import Result
from scenarios import Scenario

CHANCE = log(10)  # the loss of who knows nothing of ten classes


def learned(
    scenario: Scenario, target: float | None = None, result: Result | None = None
) -> dict[str, float]:
    """Run a scenario in which digits are learned: the figures by which strategies are compared.

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
    passed = np.concatenate([[0.0], curve[column].to_numpy()])
    above = np.log([CHANCE, *map(bounded, curve["loss"])]) - log(target)
    reached = np.flatnonzero(above <= 0)
    if not len(reached):
        return float(passed[-1])
    i = reached[0]
    return float(passed[i] - (passed[i] - passed[i - 1]) * above[i] / (above[i] - above[i - 1]))
