"""Reads what runs and sweeps left in folders."""

import json
from dataclasses import replace
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from lockstep import scenarios
from lockstep.analysis import before, incomplete
from lockstep.analysis.folders import INCOMPLETE, settle
from lockstep.analysis.records import checked, in_order
from lockstep.analysis.result import Result
from lockstep.analysis.utilisation import check as check_utilisation
from lockstep.job.plan import Plan
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.document import parse
from lockstep.scenarios.workload import UserTask

_RUN = ("scenario.yaml", "result.json", "records.parquet")
UNREADABLE = (
    *(OSError, EOFError, BadZipFile, ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(RecursionError, NotImplementedError, SyntaxError, TokenError),
)
"""What libraries raise that read a damaged file: JSON, numpy's and Parquet."""
_NUMBERS = (
    *("workers", "duration_s", "updates", "updates_per_s", "samples", "throughput", "dropped", "speedup"),
    *(
        "efficiency",
        "bytes_sent",
        "loss",
        "accuracy",
        "target",
        "time_to_target_s",
        "memory_bytes",
        "attempts",
    ),
)
_WORDS = ("engine", "scenario", "strategy", "parameters_sha256", "bottleneck", "target_metric")
_LATER = {"memory_bytes", "attempts", "target_metric"}  # what the first versions did not write
_TABLES = {"staleness": ("mean", "p50", "p99", "max"), "breakdown": ("compute", "network", "wait")}


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
        scenario = scenarios.load(folder / "scenario.yaml", alone=True, beside=False, changed=True)
        metrics = _metrics(folder / "result.json")
        records, utilisation, interleaving = (
            pd.read_parquet(file, page_checksum_verification=True)
            if (file := folder / f"{name}.parquet").is_file()
            else None
            for name in ("records", "utilisation", "interleaving")
        )
        assert records is not None
        plan = _as_written(Plan.of(scenario), folder / "scenario.yaml")
        if metrics["workers"] != scenario.cluster.workers:
            raise ValueError("its workers are not the scenario's")
        records = checked(records, len(plan.roles))
        if not records["end"].is_monotonic_increasing:  # another program has written them
            records = in_order(records)
        if utilisation is not None:
            utilisation = before.with_identities(utilisation)
            check_utilisation(utilisation)
        parameters = np.load(file) if (file := folder / "parameters.npy").is_file() else None
        if parameters is not None and (parameters.ndim != 1 or parameters.dtype.kind != "f"):
            raise ValueError("parameters.npy is no vector of numbers")
        speedup, throughput = metrics["speedup"], metrics["throughput"]
        warnings = {"disturbances" if metrics.get("disturbed") else "warnings": metrics["warnings"]}
        result = Result(
            engine=metrics["engine"],
            plan=plan,
            records=records,
            gradient_s=scenario.workload.batch_size * speedup / throughput if speedup else 0.0,
            parameters=parameters,
            **warnings,
            utilisation=utilisation,
            interleaving=interleaving,
        )
    except UNREADABLE as error:
        problem = f"its files cannot be read ({said(error)})"
        raise ScenarioError(problem, file=str(folder)) from None
    vars(result)["metrics"] = metrics  # what was computed then, not again
    return result


def _as_written(plan: Plan, file: Path) -> Plan:
    """With the hash of the code that the run was of, which may have changed since."""
    workload: Any = plan.scenario.workload
    if not isinstance(workload, UserTask):
        return plan
    content = parse(file.read_text(encoding="utf-8"), {})["workload"].get("content")
    workload = workload.model_copy(update={"content": content})
    return replace(plan, scenario=plan.scenario.model_copy(update={"workload": workload}))


def said(error: BaseException) -> str:
    """What a library says of a damaged file, in short."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def _metrics(file: Path) -> dict[str, Any]:
    """What `Result.to_json` wrote: those that are known of their types. Raises what is in UNREADABLE."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a number")

    found = json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)
    for names, kinds in ((_NUMBERS, int | float), (_WORDS, str), (_TABLES, dict)):
        for name in names:
            if name not in found and name not in _LATER:
                raise ValueError(f"it has no {name}")
            if not isinstance(found.get(name), kinds | None):
                raise ValueError(f"{name} is {str(found[name])[:30]!r}")
    for name, keys in _TABLES.items():
        if found[name] is not None and not found[name].keys() >= set(keys):
            raise ValueError(f"{name} has not all of {', '.join(keys)}")
        if not all(isinstance(each, int | float | dict | None) for each in (found[name] or {}).values()):
            raise ValueError(f"{name} has what is not a number")
    for kind, each in (found.get("breakdown_by_worker") or {}).items():
        if len(_numbers(each, f"breakdown_by_worker.{kind}")) != found["workers"]:
            raise ValueError(f"breakdown_by_worker.{kind} is not of all workers")
    histogram = (found["staleness"] or {}).get("histogram") or {}
    _numbers([*histogram.values(), *map(int, histogram)], "staleness.histogram")
    if found["engine"] not in ("simulator", "executor"):
        raise ValueError(f"engine is {str(found['engine'])[:30]!r}")
    if not all(isinstance(each, str) for each in found["warnings"]):
        raise ValueError("warnings are not all texts")
    return dict(found)


def _numbers(values: Any, name: str) -> list[float]:
    if not isinstance(values, list) or not all(isinstance(each, int | float) for each in values):
        raise ValueError(f"{name} has what is not a number")
    return values
