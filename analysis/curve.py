"""What was evaluated on held-out data."""

from typing import TYPE_CHECKING

import numpy as np

from lockstep.analysis.given import given
from lockstep.analysis.records import has, of, values

if TYPE_CHECKING:
    from lockstep.analysis.result import Result


def curve(result: "Result") -> dict[str, np.ndarray]:
    """The columns of `Result.curve`."""
    found = values(given(result, "records"), "evaluation", ["end", "version", "loss", "accuracy"])
    columns = {"time": found.pop("end") - result.span[0], **found}
    if has(given(result, "records"), "metric"):
        others = of(result.records, "metric", ["version", "kind", "accuracy"])
        for name, rows in others.groupby("kind", observed=True, sort=False):
            scores = dict(zip(rows["version"], rows["accuracy"], strict=True))  # the last of each version
            columns[str(name)] = np.array([scores.get(version, np.nan) for version in columns["version"]])
    return columns
