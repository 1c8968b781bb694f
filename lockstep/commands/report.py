"""`lockstep report`."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from lockstep.commands.options import check_out
from scenarios import ScenarioError

Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="The --out of simulate, run, validate or sweep, or a folder of them."),
]
Html = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="The page to write; DIR/report.html.")
]


def report(folder: Folder, out: Html = None) -> None:
    """Write a folder of results as one HTML page.

    It needs no network: what was asked, the answer, pictures, tables, and how to reproduce each row.
    """
    from analysis.report import gather, write

    gathered = gather(folder)
    file = out if out is not None else folder / "report.html"
    if file.is_dir():
        raise ScenarioError(f"{str(file)!r} is a folder; give a file, such as report.html", key="--out")
    check_out(file.parent)
    write(gathered, file, _versions())
    print(f"Written to {file}.")


def _versions() -> dict[str, str]:
    """What the report is made with; nothing that tells machines apart."""
    from lockstep.sweeping.version import version as code

    return {"lockstep": version("lockstep"), **code("simulator")}
