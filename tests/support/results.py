"""Results whose records are written by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lockstep import Result, Scenario
from lockstep.analysis.records import Recorder
from lockstep.job.plan import Plan


def result_of(
    write: Callable[[Recorder], None],
    workers: int = 2,
    owners: Sequence[int] | None = None,
    batch_size: int = 10,
    gradient_s: float = 1.0,
    target: float | None = None,
    parameters: np.ndarray | None = None,
) -> Result:
    """A run with these records; one server, the rank after the workers', unless `owners` says otherwise."""
    workload: dict[str, Any] = {"parameters": 1000, "batch_size": batch_size}
    stop: dict[str, Any] = {"steps": 10}
    if target is not None:
        workload = {"dataset": "digits", "batch_size": batch_size}
        stop["target_accuracy"] = target
    compute = {"time": {"distribution": "constant", "value": "1 s"}}
    owners = [workers] if owners is None else list(owners)
    strategy, servers = ("asynchronous", len(owners)) if owners[0] >= workers else ("all-reduce", 1)
    strategy = "hogwild" if owners == [0] else strategy
    scenario = Scenario.model_validate(
        {
            "name": "by-hand",
            "cluster": {"workers": workers, "compute": compute, "servers": servers},
            "workload": workload,
            "strategy": strategy,
            "stop": stop,
            "seed": 3,
        }
    )
    recorder = Recorder()
    write(recorder)
    return Result(
        engine="simulator",
        plan=Plan.of(scenario),
        records=recorder.frame(),
        gradient_s=gradient_s,
        parameters=parameters,
    )
