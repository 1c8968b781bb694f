"""Runs that one sentence may speak of: all predicted or all measured, and all of the same work."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from lockstep.analysis.summary import DONE

# What makes samples of one kind; mini-batches and how the data are dealt out do not.
WORK = tuple(
    f"workload.{key}" for key in ("preset", "dataset", "model", "problem", "dimension", "parameters", "flops")
)


def works(runs: pd.DataFrame) -> "pd.Series[str]":
    """In words what each run works on: "cnn on digits", "25,600,000 parameters"."""
    there = [key for key in WORK if key in runs]
    found = [_named(dict(zip(there, row, strict=True))) for row in runs[there].itertuples(index=False)]
    return pd.Series(found, index=runs.index, dtype=object)


class Group(NamedTuple):
    """Runs of one engine on the same work, in words; "" if all runs are on the same."""

    engine: str
    work: str

    @property
    def title(self) -> str:
        """What is said before their answer: "Predicted", or "Measured, cnn on digits"."""
        return ", ".join(part for part in (DONE[self.engine].capitalize(), self.work) if part)


def groups(runs: pd.DataFrame) -> dict[Group, pd.DataFrame]:
    """The runs of each group, in the order of their first."""
    by = [runs["engine"], works(runs)]
    several = by[1].nunique() > 1
    return {
        Group(str(engine), str(work) if several else ""): group
        for (engine, work), group in runs.groupby(by, sort=False)
    }


def _named(row: Mapping[str, Any]) -> str:
    known = {
        key.partition(".")[2]: value for key, value in row.items() if value is not None and value == value
    }
    if "preset" in known:
        return str(known["preset"])
    if "dataset" in known:
        return f"{known.get('model', 'a model')} on {known['dataset']}"
    if "problem" in known:
        return f"a {known['problem']} problem in {known['dimension']:,.0f} dimensions"
    flops = f" of {known['flops']:.3g} FLOP a sample" if "flops" in known else ""
    return f"{known['parameters']:,.0f} parameters{flops}" if "parameters" in known else "unknown work"
