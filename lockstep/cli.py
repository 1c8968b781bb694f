"""The command line. Exit status: 0 fine, 2 bad input, 3 the run failed, 130 interrupted."""

import os
import sys
from io import TextIOWrapper
from signal import SIGTERM, default_int_handler
from typing import Any

import typer

from executor import signals
from lockstep.commands.calibrate import calibrate
from lockstep.commands.lists import clusters, profiles, scenarios, schema, strategies, workloads
from lockstep.commands.one_run import run, simulate
from lockstep.commands.plot import plot
from lockstep.commands.recommend import recommend
from lockstep.commands.report import report
from lockstep.commands.sweep import sweep
from lockstep.commands.truths import claims, verify
from lockstep.commands.validate import validate
from scenarios import ScenarioError

app = typer.Typer(
    help="Predict and measure data-parallel training: one strategy, two clocks.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    simulate,
    run,
    validate,
    recommend,
    sweep,
    plot,
    report,
    verify,
    claims,
    calibrate,
    scenarios,
    clusters,
    workloads,
    profiles,
    strategies,
    schema,
):
    app.command()(command)


def main() -> None:
    """The command `lockstep`."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what a terminal has no letter for is no error
    try:
        with signals.handled(default_int_handler, SIGTERM):  # asked to end, it leaves as little behind
            status = app(sys.argv[1:] or ["--help"], prog_name="lockstep", standalone_mode=False)
        sys.stdout.flush()  # or Python would, and fail, when nobody can say so any more
        if status == 130:  # typer's word for Ctrl-C
            raise KeyboardInterrupt
    except ScenarioError as error:
        status = _complain(str(error), 2)
    except typer.Exit as leave:
        status = leave.exit_code
    except (typer.Abort, KeyboardInterrupt):
        status = _complain("interrupted", 130)
    except OSError as error:  # such as a full disk
        said = os.strerror(error.errno) if error.errno else error  # pyarrow's says it twice
        if not _could_print() and isinstance(error, BrokenPipeError):
            status = 1  # who reads has read enough; typer has the same
        else:
            status = _complain(f"{error.filename or 'output'}: {said}", 3)
    except RuntimeError as error:
        if type(error).__name__ not in ("RunFailed", "SimulationError", "Misfit", "ReplayDiffers"):
            raise
        print(getattr(error, "details", ""), end="", file=sys.stderr)
        status = _complain(str(error), 3)
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's usage errors have it
            raise
        status = _complain(_usage(error), 2)
    sys.exit(status or 0)


def _could_print() -> bool:
    """Whether standard output takes what was printed; if not it is dropped: Python would try again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _usage(error: Any) -> str:
    """One line of a usage error of click's, and where to read more."""
    context = getattr(error, "ctx", None)
    said = " ".join(error.format_message().split()).rstrip(".")
    return f"{said[0].lower()}{said[1:]} (see '{context.command_path if context else 'lockstep'} --help')"


def _complain(message: str, status: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status
