"""Simulated runs in which workers fail."""

from typing import Any

import lockstep
from lockstep import Result
from lockstep.scenarios.loading import made
from lockstep.studies.chaos.invariants import broken

CRASH = {"worker": 2, "at": "3.05 s", "crash": True, "back_after": "2 s"}
GONE = {"worker": 2, "at": "3.05 s", "crash": True}


def simulated(
    *faults: Any, strategy: Any, on: str = "continue", every: int | None = 1, workers: int = 4, **more: Any
) -> Result:
    """Workers whose gradients take 0.1 s; failures are noticed after half a second. All adds up."""
    document = {
        "name": "gone",
        "cluster": {
            "workers": workers,
            "compute": {"time": {"distribution": "constant", "value": "100 ms"}},
            "detect": "500 ms",
            "faults": list(faults),
            **more.pop("cluster", {}),
        },
        "workload": {"parameters": 1000, "batch_size": 32},
        "strategy": strategy,
        "recovery": {"on_failure": on} | ({"checkpoint": {"every": f"{every} updates"}} if every else {}),
        "stop": {"time": "10.04 s"},
        **more,
    }
    result = lockstep.simulate(made(document))
    assert not [*broken(result)]
    return result
