"""SimGrid as a second opinion on when flows end. It is not a dependency: it is used where it is installed."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

CHILD = Path(__file__).with_name("simgrid_child.py")


class Case(NamedTuple):
    """Flows over links: `capacity` of each link in bytes/s; of each flow its start in s, links and bytes."""

    name: str
    capacity: Sequence[float]
    flows: Sequence[tuple[float, Sequence[int], int]]


@cache
def python() -> str | None:
    """Return the first Python that can import SimGrid: this one, Debian's, or the one on PATH."""
    for candidate in dict.fromkeys([sys.executable, "/usr/bin/python3", shutil.which("python3")]):
        if candidate and Path(candidate).exists():
            command = [candidate, "-c", "import simgrid; simgrid.Engine"]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return candidate
    return None


def available() -> str | None:
    """Return None if SimGrid is here, else why it is left out."""
    return None if python() else "SimGrid is not installed (Debian's python3-simgrid, or pip install simgrid)"


def run(cases: Sequence[Case]) -> list[list[float]]:
    """Return the seconds at which each case's flows end in SimGrid's plain max-min model (CM02).

    All cases run in one process. Raises RuntimeError if SimGrid is not here or fails.
    """
    interpreter = python()
    if interpreter is None:
        raise RuntimeError(available())
    work = json.dumps([{"capacity": case.capacity, "flows": case.flows} for case in cases])
    done = subprocess.run(
        [interpreter, str(CHILD)], input=work, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"SimGrid failed: {done.stderr.strip()[-1000:] or f'exit {done.returncode}'}")
    ends: list[list[float]] = json.loads(done.stdout)
    return ends
