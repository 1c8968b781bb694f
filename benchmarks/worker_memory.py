"""How many model sizes a process of a real run holds at its worst moment, beside what `run` counts before it.

Run: python benchmarks/worker_memory.py [FAMILY]. Each family runs with two sizes of a model whose layers are
equal; the difference of the peaks by the difference of the sizes is what one process holds, in model sizes.
Memory that several processes map is shared out among them (Pss): all who read a server's parameters read the
same. It is looked at every few milliseconds. The data and a mini-batch are next to nothing. 20 steps of two
workers; a minute for all, on two cores.
"""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn
from torch.utils.data import TensorDataset

import lockstep
from lockstep.executor.room import held

LAYERS, WIDTHS = 8, (1024, 1536)
FAMILIES: dict[str, dict[str, Any]] = {
    "synchronous": {"strategy": "synchronous"},
    "synchronous, adam": {"strategy": {"name": "synchronous", "optimizer": "adam"}},
    "asynchronous": {"strategy": "asynchronous"},
    "ssp": {"strategy": "ssp"},
    "downpour": {"strategy": {"name": "downpour", "communication_window": 5}},
    "aeasgd": {"strategy": {"name": "aeasgd", "communication_window": 5}},
    "fedavg": {"strategy": {"name": "fedavg", "local_epochs": 1}},
    "synchronous, 1-bit": {"strategy": {"name": "synchronous", "codec": "1-bit"}},
    "all-reduce, ring": {"strategy": {"name": "all-reduce", "algorithm": "ring"}},
    "all-reduce, adam": {"strategy": {"name": "all-reduce", "optimizer": "adam"}},
    "all-reduce, native": {"strategy": {"name": "all-reduce", "algorithm": "native"}},
    "all-reduce, top-k": {"strategy": {"name": "all-reduce", "codec": "top-k"}},
    "local-sgd": {"strategy": "local-sgd"},
    "streaming-diloco": {"strategy": {"name": "streaming-diloco", "averaging_period": 4, "fragments": 2}},
    "d-psgd": {"strategy": "d-psgd"},
    "gossip": {"strategy": "gossip"},
    "fsdp": {"strategy": {"name": "fsdp", "units": 4}},
    "1f1b": {"strategy": "all-reduce", "parallelism": {"pipeline": 2}},
    "pipedream": {"strategy": "pipedream", "parallelism": {"pipeline": 2}},
    "tensor": {"strategy": "all-reduce", "parallelism": {"tensor": 2}},
    "hogwild": {"strategy": "hogwild"},
}


def layers(width: int) -> lockstep.Task:
    """Equal layers, and hardly any data."""
    each = [module for _ in range(LAYERS) for module in (nn.Linear(width, width, bias=False), nn.ReLU())]
    data = TensorDataset(torch.randn(32, width), torch.randn(32, width))
    return lockstep.Task(
        nn.Sequential(*each), data, data, lambda model, batch: (model(batch[0]) - batch[1]).square().mean()
    )


def scenario(width: int, changes: dict[str, Any]) -> Any:
    compute = {"time": {"distribution": "constant", "value": "1 ms"}}
    cluster = {"workers": 2, "network": {}, "compute": compute}
    return lockstep.scenario(
        layers, {"width": width}, cluster=cluster, stop={"steps": 20}, batch_size=2, **changes
    )


def peaks(config: Any) -> list[int]:
    """Bytes, at the most, of each process of a run in the order of their ranks."""
    seen: dict[int, int] = {}
    over = threading.Event()

    def look() -> None:
        me = psutil.Process()
        while not over.wait(0.004):
            for server in me.children():
                for process in server.children():
                    seen[process.pid] = max(seen.get(process.pid, 0), _held(process.pid))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        lockstep.run(config, attempts=1)
    finally:
        over.set()
        watching.join()
    return [seen[pid] for pid in sorted(seen) if seen[pid]]


def _held(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    names = [name for name in FAMILIES if name in sys.argv[1:] or len(sys.argv) == 1]
    print(f"{'':20} {'model sizes held':>28}   counted")
    for name in names:
        both = [scenario(width, FAMILIES[name]) for width in WIDTHS]
        small, large = (peaks(config) for config in both)
        sizes = [LAYERS * width**2 * 4 for width in WIDTHS]
        slopes = [(b - a) / (sizes[1] - sizes[0]) for a, b in zip(small, large, strict=True)]
        plan = lockstep.check(both[1])
        counted = [held(plan, rank) / sizes[1] for rank in range(len(plan.roles))]
        shown = (" ".join(f"{value:5.1f}" for value in values) for values in (slopes, counted))
        print(f"{name:20} {'   '.join(shown)}", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
