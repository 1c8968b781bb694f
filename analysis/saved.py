"""Reads what runs and sweeps left in folders."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from lockstep import scenarios
from lockstep.analysis import before, incomplete
from lockstep.analysis.folders import INCOMPLETE, settle
from lockstep.analysis.records import in_order
from lockstep.analysis.result import Result
from lockstep.job.plan import Plan
from lockstep.scenarios import ScenarioError

_RUN = ("scenario.yaml", "result.json", "records.parquet")


def is_run(folder: Path) -> bool:
    """Whether it is what `Result.save` wrote, of a run that has ended."""
    settle(folder)
    return all((folder / name).is_file() for name in _RUN)


def check_ended(folder: Path) -> None:
    """Raise ScenarioError for the folder of a sweep that was killed before it wrote its table."""
    if (folder / "points.jsonl").is_file() and not (folder / "results.parquet").is_file():
        what = (
            "the sweep in it was killed before its table was written; start the same sweep again: it goes on"
        )
        raise ScenarioError(what, file=str(folder))


def load(folder: str | Path) -> Result:
    """The run that `Result.save` wrote there (`--out` of simulate and run), its metrics as they were.

    `gradient_s` is recovered from the metrics: 0 if they have no speedup. Raises ScenarioError if files are
    missing or cannot be read.
    """
    folder = Path(folder)
    if not is_run(folder):
        if incomplete.is_one(folder / INCOMPLETE):
            left = folder / INCOMPLETE
            raise ScenarioError(f"the run in it is incomplete: {incomplete.why(left)}", file=str(folder))
        missing = next(name for name in _RUN if not (folder / name).is_file())
        raise ScenarioError(
            f"there is no {missing}; give the --out of a run that has ended", file=str(folder)
        )
    try:
        scenario = scenarios.load(folder / "scenario.yaml", alone=True, beside=False)
        metrics = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        records, utilisation, interleaving = (
            pd.read_parquet(file) if (file := folder / f"{name}.parquet").is_file() else None
            for name in ("records", "utilisation", "interleaving")
        )
        assert records is not None
        if not records["end"].is_monotonic_increasing:  # another program has written them
            records = in_order(records)
        parameters = np.load(file) if (file := folder / "parameters.npy").is_file() else None
        speedup, throughput = metrics["speedup"], metrics["throughput"]
        result = Result(
            engine=metrics["engine"],
            plan=Plan.of(scenario),
            records=records,
            gradient_s=scenario.workload.batch_size * speedup / throughput if speedup else 0.0,
            parameters=parameters,
            warnings=metrics["warnings"],
            utilisation=None if utilisation is None else before.with_identities(utilisation),
            interleaving=interleaving,
        )
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as error:
        problem = f"its files cannot be read ({type(error).__name__}: {error})"
        raise ScenarioError(problem, file=str(folder)) from None
    vars(result)["metrics"] = metrics  # what was computed then, not again
    return result
