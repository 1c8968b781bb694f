"""What tests of real runs that fail have in common: a small job, and what befalls it."""

from typing import Any

CRASH = {"worker": 1, "at": "1 s", "crash": True, "back_after": "500 ms"}
SERVER = {"server": 0, "at": "1 s", "crash": True, "back_after": "500 ms"}
HANG = {"worker": 1, "at": "1 s", "hang_for": "2 s"}
LINK = {"link": {"host": 1}, "at": "1 s", "down_for": "800 ms"}
PARTITION = {"partition": [[0, 2], [1]], "at": "1 s", "down_for": "800 ms"}


def document(*faults: Any, cluster: Any = None, **more: Any) -> dict[str, Any]:
    """A synchronous run of two workers and a server."""
    return {
        "name": "faults",
        "cluster": {
            "workers": 2,
            "servers": 1,
            "compute": {"time": {"distribution": "constant", "value": "50 ms"}},
            "detect": "300 ms",
            "faults": list(faults),
            **(cluster or {}),
        },
        "workload": {"dataset": "digits", "model": "mlp", "batch_size": 32},
        "strategy": {"name": "synchronous", "optimizer": "adam"},
        "stop": {"updates": 60},
        "recovery": {"checkpoint": {"every": "5 updates"}, "on_failure": "restart"},
        **more,
    }
