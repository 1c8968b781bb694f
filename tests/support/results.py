"""Results whose records are written by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lockstep import Result, Scenario
from lockstep.analysis.records import Recorder


def result_of(
    write: Callable[[Recorder], None],
    workers: int = 2,
    holders: Sequence[int] | None = None,
    batch_size: int = 10,
    gradient_s: float = 1.0,
    target: float | None = None,
    parameters: np.ndarray | None = None,
) -> Result:
    """A run with these records; one server, the rank after the workers', unless `holders` says otherwise."""
    workload: dict[str, Any] = {"parameters": 1000, "batch_size": batch_size}
    stop: dict[str, Any] = {"steps": 10}
    if target is not None:
        workload = {"dataset": "digits", "batch_size": batch_size}
        stop["target_accuracy"] = target
    compute = {"time": {"distribution": "constant", "value": "1 s"}}
    scenario = Scenario.model_validate(
        {
            "name": "by-hand",
            "cluster": {"workers": workers, "compute": compute},
            "workload": workload,
            "strategy": "asynchronous",
            "stop": stop,
            "seed": 3,
        }
    )
    recorder = Recorder()
    write(recorder)
    return Result(
        engine="simulator",
        scenario=scenario,
        records=recorder.frame(),
        holders=[workers] if holders is None else holders,
        gradient_s=gradient_s,
        parameters=parameters,
    )
