"""The command line. Exit status: 0 fine, 2 bad input, 3 the run failed, 130 interrupted."""

import atexit
import fcntl
import gc
import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from signal import SIGTERM, default_int_handler
from typing import Any

import typer

from lockstep.executor import signals
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.problem import Note

# Of each command its module, in the order in which help has them.
COMMANDS = {
    **dict.fromkeys(("simulate", "run"), "one_run"),
    "validate": "validate",
    "recommend": "recommend",
    "sweep": "sweep",
    "plot": "plot",
    "report": "report",
    "compare": "compare",
    "serve": "serve",
    **dict.fromkeys(("verify", "claims"), "studies"),
    "chaos": "chaos",
    "calibrate": "calibrate",
    "fit": "fit",
    "model": "model",
    "key": "key",
    **dict.fromkeys(
        ("scenarios", "clusters", "workloads", "profiles", "strategies", "systems", "schema"), "lists"
    ),
}
# "default_map": what --help is without being given, which typer would load pydantic to find out.
_SETTINGS = {"help_option_names": ["-h", "--help"], "default_map": {"help": False}}


def app(asked: str = "") -> typer.Typer:
    """The commands; if there is one of the name that is asked for it alone: the others would take time."""
    found = typer.Typer(
        help="Predict and measure data-parallel training, pipelines too: one strategy, two clocks.",
        add_completion=asked not in COMMANDS,  # which would be a tenth of a list's time
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=_SETTINGS,
    )
    found.callback()(lambda: None)  # one command, too, is asked for by its name
    for name in [asked] if asked in COMMANDS else COMMANDS:
        module = import_module(f"lockstep.commands.{COMMANDS[name]}")
        found.command(context_settings=_SETTINGS)(getattr(module, name))
    return found


_usual = warnings.formatwarning


def _in_a_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Notes are for authors of scenarios: leave out where in the code they come from."""
    if issubclass(category, Note):
        return f"note: {message}\n"
    return _usual(message, category, filename, lineno, line)


def main() -> None:
    """The command `lockstep`."""
    warnings.formatwarning = _in_a_line
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a character that the terminal lacks is no error
    apart = _results_apart()
    try:
        with signals.handled(default_int_handler, SIGTERM):  # asked to end, it leaves as little behind
            words = sys.argv[1:] or ["--help"]
            if COMMANDS.get(words[0]) in ("lists", "one_run", "sweep"):
                gc.disable()  # until all is loaded (commands/options.py): there is nothing to collect
            if COMMANDS.get(words[0]) == "lists":  # it ends at once
                atexit.register(gc.freeze)  # nor is there anything to collect at its end: an eighth
            status = app(words[0])(words, prog_name="lockstep", standalone_mode=False)
        sys.stdout.flush()  # or Python would at its end, and fail without a message
        if status == 130:  # typer's word for Ctrl-C
            raise KeyboardInterrupt
    except ScenarioError as error:
        status = _complain(str(error), 2)
    except typer.Exit as leave:
        status = leave.exit_code
    except (typer.Abort, KeyboardInterrupt):
        status = _complain("interrupted", 130)
    except signals.TimedOut as error:
        status = _complain(str(error), 3)
    except OSError as error:  # such as a full disk
        said = os.strerror(error.errno) if error.errno else error  # pyarrow's says it twice
        if not _could_print() and isinstance(error, BrokenPipeError):
            status = 1  # the reader, such as `head`, has closed the pipe; typer has the same
        else:
            status = _complain(f"{error.filename or 'output'}: {said}", 3)
    except RuntimeError as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}  # which are loaded where they are raised
        if not kinds & {"RunFailed", "SimulationError", "ReplayDiffers"}:
            raise
        print(getattr(error, "details", ""), end="", file=sys.stderr)
        status = _complain(str(error), 3)
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's usage errors have it
            raise
        status = _complain(_usage(error), 2)
    if apart:
        sys.stdout = sys.stderr  # for what users' code prints at Python's end
    sys.exit(status or 0)


def _results_apart() -> bool:
    """Let results alone go to standard output, and what users' code writes to descriptor 1 where messages do.

    Until the process ends. False where standard output is none, or is not descriptor 1.
    """
    with suppress(OSError, ValueError, AttributeError):
        if sys.stdout.fileno() == 1 and sys.stderr.fileno() == 2:
            sys.stdout.flush()
            own = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
            there = open(own, "w", encoding=sys.stdout.encoding, errors="replace")  # noqa: SIM115
            sys.stdout = there
            sys.__stdout__ = there  # type: ignore[misc]  # which tells the terminal's width
            os.dup2(2, 1)
            return True
    return False


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
    if hasattr(error.__cause__, "errors"):  # what is wrong with an option's value is pydantic's
        from lockstep.scenarios.errors import in_words

        error.message = in_words(error.__cause__.errors()[0])
    said = " ".join(error.format_message().split()).rstrip(".")
    return f"{said[0].lower()}{said[1:]} (see '{context.command_path if context else 'lockstep'} --help')"


def _complain(message: str, status: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status
