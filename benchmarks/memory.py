"""How much memory a run and its records take: the peak of a `lockstep simulate --out` of its own process.

Run: python benchmarks/memory.py [STEPS]. Asynchronous, sizes only, 10,000 workers and one server; with the
100 steps that are the default, a million gradients and updates and two million messages. Takes minutes.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

WORKERS = 10_000
BOUND_GB = 1.5


def peak(steps: int, workers: int = WORKERS) -> tuple[float, int, float]:
    """The most bytes of the process, how many records it wrote, and its processor's time in s."""
    changes = {
        "cluster.workers": workers,
        "cluster.servers": 1,
        "strategy": "asynchronous",
        "stop.steps": steps,
        "workload.parameters": 1_000_000,
    }
    flags = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    # Its own most: what wait4 says has that of whoever started it, too.
    program = "import sys; from lockstep.cli import main; sys.argv[:2], most = sys.argv[:1], sys.argv[1]\n"
    program += "try: main()\nfinally: open(most, 'w').write(open('/proc/self/status').read())"
    with TemporaryDirectory() as out:
        status_of = f"{out}/status"
        given = ["simulate", "sizes-only", *flags, "--yes", "--out", f"{out}/run"]
        command = [sys.executable, "-c", program, status_of, *given]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"exit status {process.returncode}: {command}")
        records = pq.read_metadata(f"{out}/run/records.parquet").num_rows
        (most,) = [line.split()[1] for line in Path(status_of).read_text().splitlines() if "VmHWM" in line]
    return int(most) * 1024.0, records, used.ru_utime + used.ru_stime


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    most, records, _ = peak(steps)
    said = f"{most / 1e9:.2f} GB at most, {most / records:.0f} bytes for each of {records:,} records"
    print(f"{WORKERS:,} workers, {steps} steps each: {said}")
    if most > BOUND_GB * 1e9:
        sys.exit(f"more than {BOUND_GB} GB")


if __name__ == "__main__":
    main()
