"""The options that commands share, and what they mean."""

import gc
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

import lockstep
from lockstep import scenarios, terminal
from lockstep.analysis.words import size
from lockstep.printing import Printing
from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:
    from lockstep.analysis.result import Result
    from lockstep.scenarios import Scenario
    from lockstep.work import Work


def _shipped(incomplete: str) -> list[str]:
    """For the shell's completion, which has files by itself."""
    return [name for name in scenarios.shipped() if name.startswith(incomplete)]


File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A scenario file, or a name that 'lockstep scenarios' lists.",
        autocompletion=_shipped,
    ),
]
MaybeFile = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="A scenario file or name, unless an option stands for it.",
        autocompletion=_shipped,
    ),
]
Replay = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Repeat the real run whose --out this is, instead of FILE."),
]
Resume = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Go on with the run whose --out this is, which was killed."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as cluster.workers=8; repeatable."),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to write the results.")]
Tensorboard = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where to write scalars for TensorBoard.")
]
Timeline = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the run as a trace for ui.perfetto.dev: .json or .json.gz."),
]
Why = Annotated[
    bool,
    typer.Option("--why", help="Try what would shorten the run most, if it were a tenth faster."),
]
WhatIf = Annotated[
    bool,
    typer.Option("--what-if", help="Try the way to the ideal: faster network, no stragglers, more servers."),
]


def _trust(given: bool) -> None:
    if given:
        from lockstep.scenarios.code import trust

        trust()


Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run code that the scenario names wherever it lies.",
        callback=_trust,
        expose_value=False,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--strategy", metavar="NAME", help="Compare these instead of the file's; repeatable."),
]
Testbed = Annotated[
    bool,
    typer.Option("--testbed", help="Over the scenario's own network, built on this machine; needs root."),
]


Timeout = Annotated[
    float | None,
    typer.Option(min=0.001, metavar="SECONDS", help="Give up after so long, as a run that failed."),
]
Attempts = Annotated[
    int,
    typer.Option(min=1, max=100, metavar="N", help="Measure again, up to N times in all, while disturbed."),
]
MaybeAttempts = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100,
        metavar="N",
        help="Measure again, up to N times in all, while disturbed (3; for some kinds of runs 1).",
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        metavar="SECONDS",
        help="How long a process may give no sign, or not get on; default: 20, or ten longest gradients.",
    ),
]


Yes = Annotated[
    bool, typer.Option("--yes", help="Do not ask first, even if it takes hours, or nearly all memory.")
]


def ask_first(work: "Callable[[], Work]", yes: bool, timeout: float | None = None) -> None:
    """Ask before what takes more than an hour, or nearly all memory; who says no leaves with 130.

    Raises ScenarioError where there is no terminal to ask on.
    """
    problem = None if yes else work().within(timeout).too_much
    if problem is None:
        return
    if not on_a_terminal():
        raise ScenarioError(f"{problem}; take less of it (a nearer stop, fewer workers), or say --yes")
    print(f"{problem[0].upper()}{problem[1:]}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if input().strip().lower() not in ("y", "yes"):
        raise typer.Abort


def all_is_loaded() -> None:
    """Let Python look for garbage again, if it did not while modules were loaded, but not among these."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def on_a_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def load(
    file: str, overrides: list[str], testbed: bool, fits: bool = True, beside: bool = True
) -> "Scenario":
    """The scenario of a command that does not sweep; its own is left out if it is not valid.

    `beside`: whether code that lies beside the file may run; not where a folder of results has it.
    Raises ScenarioError, with `testbed` also if it cannot be built here, with `fits` if memory is too small.
    """
    check = partial(lockstep.check, testbed=testbed, fits=fits)
    return scenarios.load(file, overrides, check, alone=True, beside=beside)


class Output(NamedTuple):
    """Where the results of a command go, and whether people are told what it does meanwhile."""

    out: Path | None
    printing: Printing
    quiet: bool
    tensorboard: Path | None = None
    timeline: Path | None = None

    def check(self) -> None:
        """Refuse, before anything is computed, what cannot be written; leaves nothing behind."""
        check_results(self.out)
        if self.tensorboard is not None:
            from lockstep.analysis.tensorboard import check

            check()
            _check_writable(self.tensorboard, "--tensorboard")
        if self.timeline is not None:
            if not self.timeline.name.endswith((".json", ".json.gz")) or self.timeline.is_dir():
                problem = f"give a file that ends in .json or .json.gz, not {str(self.timeline)!r}"
                raise ScenarioError(problem, key="--timeline")
            _check_writable(self.timeline.parent, "--timeline")

    def progress(self, doing: str) -> AbstractContextManager[Callable[[float], None] | None]:
        """`terminal.progress`, unless nothing is to be said."""
        return terminal.progress(doing, self.quiet or bool(self.printing))

    def write_timeline(self, results: "Sequence[Result]") -> None:
        """Write the runs into one timeline, if one is wanted, and say so."""
        if self.timeline is None or not results:
            return
        from lockstep.analysis import timeline

        self.timeline.parent.mkdir(parents=True, exist_ok=True)
        timeline.write(results, self.timeline)
        if not self.printing:
            its = size(self.timeline.stat().st_size)
            print(f"Timeline written to {self.timeline} ({its}): open it at https://ui.perfetto.dev.")


def check_out(out: Path | None) -> None:
    """Refuse an --out that cannot be written, before anything is computed; leaves nothing behind."""
    if out is not None:
        _check_writable(out, "--out")


def check_results(out: Path | None) -> None:
    """Refuse an --out that cannot be written, or that holds a sweep, which results would spoil."""
    check_out(out)
    if out is None:
        return
    from lockstep.sweeping.store import is_sweep

    if is_sweep(out):
        raise ScenarioError(f"{str(out)!r} has a sweep in it; give another folder", key="--out")


def _check_writable(folder: Path, key: str) -> None:
    from tempfile import TemporaryFile

    above = (folder, *folder.absolute().parents)
    try:
        with TemporaryFile(dir=next(path for path in above if path.exists() or path.is_symlink())):
            pass
    except OSError as error:
        reason = f"cannot write to {str(folder)!r}: {error.strerror}; give another folder"
        raise ScenarioError(reason, key=key) from None


def say_what_is_left(error: BaseException, out: Path | None) -> None:
    """Where the records of a run are that did not end well."""
    from lockstep.analysis.folders import INCOMPLETE

    records = getattr(error, "records", None)
    if out is not None and records is not None:
        print(f"What was measured until then: {out / INCOMPLETE / 'records.parquet'}", file=sys.stderr)
