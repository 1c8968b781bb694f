"""How much memory a run and its records take: the peak of a `lockstep simulate --out` of its own process.

Run: python benchmarks/memory.py [STEPS]. Asynchronous, sizes only, 10,000 workers and one server; with the
100 steps that are the default, a million gradients and updates and two million messages. Takes minutes.
"""

import os
import resource
import subprocess
import sys
from tempfile import TemporaryDirectory

WORKERS = 10_000
BOUND_GB = 1.5


def main() -> None:
    steps = sys.argv[1] if len(sys.argv) > 1 else "100"
    changes = {
        "cluster.workers": WORKERS,
        "cluster.servers": 1,
        "strategy": "asynchronous",
        "stop.steps": steps,
        "workload.parameters": 1_000_000,
    }
    flags = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    program = "from lockstep.cli import main; main()"
    with TemporaryDirectory() as out:
        command = [sys.executable, "-c", program, "simulate", "sizes-only", *flags, "--out", out]
        subprocess.run(command, check=True)
        written = sum(entry.stat().st_size for entry in os.scandir(out))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = used.ru_maxrss * 1024 / 1e9
    print(f"{WORKERS:,} workers, {steps} steps each: {peak:.2f} GB at most, {written / 1e6:.0f} MB written")
    if peak > BOUND_GB:
        sys.exit(f"more than {BOUND_GB} GB")


if __name__ == "__main__":
    main()
