"""`lockstep report`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep import scenarios, terminal
from lockstep.commands.options import Trust, check_out, load
from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:
    from lockstep.analysis.gains import Gain
    from lockstep.analysis.report import Gathered
    from lockstep.analysis.what_if import WhatIf

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="The --out of simulate, run, validate, sweep or recommend, or a folder of them."
    ),
]
Html = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="The page to write; DIR/report.html.")
]

Why = Annotated[
    bool, typer.Option(help="Try what would shorten the best run: some simulations of it, by sizes only.")
]


def report(folder: Folder, out: Html = None, why: Why = True, trust: Trust = False) -> None:
    """Write a folder of results as one HTML page.

    It needs no network: what was asked, the answer, pictures, tables, and how to reproduce each row.
    """
    from lockstep.analysis.report import gather, write

    gathered = gather(folder)
    file = out if out is not None else folder / "report.html"
    if file.is_dir():
        raise ScenarioError(f"{str(file)!r} is a folder; give a file, such as report.html", key="--out")
    check_out(file.parent)
    gains, way = _tried(gathered) if why else (None, None)
    write(gathered, file, _versions(), gains, way)
    print(f"Written to {file}.")
    for each in gathered.left_out:
        print(f"left out: {each}", file=sys.stderr)


def _tried(gathered: "Gathered") -> "tuple[list[Gain] | None, WhatIf | None]":
    """What would make the best run faster, and its way to the ideal, by sizes only.

    Nothing of a real run, and of what can be tried no more.
    """
    import lockstep
    from lockstep.analysis.report import best_run
    from lockstep.analysis.report.reproduce import settings

    if gathered.recommendation is not None:  # it has tried that
        from lockstep.analysis.gains import Gain

        tried = gathered.recommendation["why"].get(gathered.recommendation["recommended"])
        return None if tried is None else [Gain(**each) for each in tried], None
    run = best_run(gathered)
    if run is None or run["engine"] != "simulator" or gathered.kind == "validation":
        return None, None
    place = gathered.folder if gathered.kind == "sweep" else gathered.folder / run["folder"]
    try:
        file = place / "scenario.yaml"
        base = scenarios.load(file, alone=True, beside=False)
        row = {str(key): value for key, value in run.items()}
        scenario = load(str(file), settings(base, row), testbed=False, beside=False)
        with terminal.progress("trying what would shorten it", quiet=not sys.stderr.isatty()) as progress:
            gains = lockstep.why(scenario, progress)
    except (ScenarioError, RuntimeError) as error:
        print(f"note: what would shorten the best run could not be tried: {error}", file=sys.stderr)
        return None, None
    try:
        with terminal.progress("trying the way to the ideal", quiet=not sys.stderr.isatty()) as progress:
            return gains, lockstep.what_if(scenario.sizes_only, progress)
    except (ScenarioError, RuntimeError) as error:
        print(f"note: the way to the ideal could not be tried: {error}", file=sys.stderr)
        return gains, None


def _versions() -> dict[str, str]:
    """What the report is made with; nothing that tells machines apart."""
    from importlib.metadata import version

    from lockstep.job.version import version as code

    return {"lockstep": version("lockstep"), **code("simulator")}
