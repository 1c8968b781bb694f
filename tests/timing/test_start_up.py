"""What starts fast."""

import os
import resource
import subprocess
import sys
from operator import truediv
from pathlib import Path
from statistics import median

import pytest

LISTS = [["--help"], ["simulate", "--help"], ["scenarios"], ["strategies"]]


def processors_s() -> float:
    """What all processes that have ended took of them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.alone
def test_help_and_lists_start_nearly_as_fast_as_the_library_of_the_command_line(tmp_path: Path) -> None:
    """At most 1.5 times the processors' time: the median of several pairs of starts.

    What else the machine does takes time of its own, and disturbs both; a slower machine is slower with both.
    """
    # compiled here once: the environment of the tests may forbid it
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    run = "from lockstep.cli import main; main()"
    programs = {"typer": ["import typer"], **{" ".join(words): [run, *words] for words in LISTS}}
    took: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(15):
        for name, program in programs.items():
            before = processors_s()
            command = [sys.executable, "-c", *program]
            subprocess.run(command, check=True, capture_output=True, env=environment)
            took[name].append(processors_s() - before)
    base = took.pop("typer")
    ratios = {name: median(map(truediv, each, base)) for name, each in took.items()}
    assert {name: ratio for name, ratio in ratios.items() if ratio > 1.5} == {}
