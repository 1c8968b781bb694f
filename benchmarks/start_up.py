"""How long a small simulation takes from a cold start, beside what it cannot do without; best of several.

    python benchmarks/start_up.py

The bar is 2 s for the quickstart when nothing is learned. The machine's speed is in the last column: the
same as a multiple of what importing numpy and pandas takes.
"""

import subprocess
import sys
import time

RUNS = 5
COMMAND = "from lockstep.cli import main; main()"
PROGRAMS = {
    "python, doing nothing": ["pass"],
    "import numpy, pandas": ["import numpy, pandas"],
    "lockstep --help": [COMMAND, "--help"],
    "lockstep simulate sizes-only": [COMMAND, "simulate", "sizes-only"],
    "lockstep simulate quickstart, learning: false": [
        *(COMMAND, "simulate", "quickstart", "--set", "workload.learning=false"),
    ],
    "lockstep simulate quickstart": [COMMAND, "simulate", "quickstart"],
}


def seconds(code: str, *arguments: str) -> float:
    """The fastest of several starts: what disturbs one only adds to it."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    found = {name: seconds(*program) for name, program in PROGRAMS.items()}
    base = found["import numpy, pandas"]
    for name, best in found.items():
        print(f"{name:46} {best:6.2f} s {best / base:6.1f}")


if __name__ == "__main__":
    main()
