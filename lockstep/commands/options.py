"""The options that commands share, and what they mean."""

import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer

import lockstep
import scenarios
from analysis.records import save_records
from scenarios import Scenario, ScenarioError

File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A scenario file, or a name that 'lockstep scenarios' lists."),
]
MaybeFile = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="A scenario file or name, unless an option stands for it."),
]
Replay = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Repeat the real run whose --out this is, instead of FILE."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as cluster.workers=8; repeatable."),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to write the results.")]
Tensorboard = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where to write scalars for TensorBoard.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--strategy", metavar="NAME", help="Compare these instead of the file's; repeatable."),
]
Testbed = Annotated[
    bool,
    typer.Option("--testbed", help="Over the scenario's own network, built on this machine; needs root."),
]


def load(file: str, overrides: list[str], testbed: bool) -> Scenario:
    """The scenario of a command; raises ScenarioError, with `testbed` also if it cannot be built here."""
    return scenarios.load(file, overrides, partial(lockstep.check, testbed=testbed))


def check_out(out: Path | None, option: str = "--out") -> None:
    """Refuse a folder that cannot be written, before anything is computed; leaves nothing behind."""
    if out is None:
        return
    try:
        with TemporaryFile(dir=next(path for path in (out, *out.absolute().parents) if path.exists())):
            pass
    except OSError as error:
        reason = f"cannot write to {str(out)!r}: {error.strerror}; give another folder"
        raise ScenarioError(reason, key=option) from None


def keep(scenario: Scenario, records: Any, out: Path | None) -> None:
    """Write what a run that did not end well has measured."""
    if out is None or records is None:
        return
    save_records(scenario, records, out)
    print(f"What was measured until then: {out / 'records.parquet'}", file=sys.stderr)
