"""What tests of real runs that fail have in common: a small job, and what befalls it."""

import os
import signal
from pathlib import Path
from typing import Any

import lockstep
from lockstep import Result
from lockstep.scenarios.loading import made
from tests.support.command_line import COMMAND
from tests.support.commands import HANGS, until
from tests.support.forked import Forked

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


def simulated(
    *faults: Any, strategy: Any = "synchronous", on: str = "restart", every: int | None = 10, **more: Any
) -> Result:
    """100 updates of 0.1 s by four workers; failures are noticed after half a second."""
    more = {"stop": {"updates": 100}, "workload": {"parameters": 1000, "batch_size": 32}, **more}
    cluster = {
        "workers": 4,
        "compute": {"time": {"distribution": "constant", "value": "100 ms"}},
        "detect": "500 ms",
        "faults": list(faults),
        **more.pop("cluster", {}),
    }
    recovery: dict[str, Any] = {"on_failure": on}
    if every:
        recovery["checkpoint"] = {"every": f"{every} updates"}
    document = {"name": "faults", "cluster": cluster, "strategy": strategy, "recovery": recovery, **more}
    return lockstep.simulate(made(document))


def killed_at(file: Path, out: Path, version: int) -> None:
    """A run whose launcher is killed as soon as there is that checkpoint, or a later one."""
    said = file.with_suffix(".stdout"), file.with_suffix(".stderr")
    run = Forked(COMMAND[-1], ["run", str(file), "--out", str(out), "--quiet"], os.environ, *said)

    def there() -> bool:
        assert run.poll() is None, said[1].read_text()
        kept = out.glob("incomplete/checkpoint-*-*.npz")
        return any(int(file.name.split("-")[1]) >= version for file in kept)

    assert until(there, HANGS)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
