"""`lockstep compare`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lockstep import terminal
from lockstep.commands.options import Quiet, Trust, check_out
from lockstep.printing import Csv, Json, Markdown, Printing

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="A B…",
        help="Folders that --out has made, or scenarios; one of 'validate' needs no other.",
    ),
]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        help="Exit with 1 if a metric has changed so much: 'throughput<-5%'; repeatable.",
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to write pictures and comparison.json.")]


def compare(
    sources: Sources,
    fail_if: FailIf = None,
    out: Out = None,
    trust: Trust = False,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Say what differs between runs, and what that did.

    The first is compared with each of the others: keys, metrics, and where the time of a step went.
    """
    from lockstep.comparison import compare
    from lockstep.comparison.conditions import failed, parsed
    from lockstep.comparison.show import show

    printing = Printing(json_, csv, markdown)
    conditions = [parsed(text) for text in fail_if or ()]
    check_out(out)
    with terminal.progress("comparing", quiet or bool(printing)) as progress:
        found = compare(sources, progress)
    broken = failed(conditions, found)
    if not printing.print(found.to_json(), lambda: found.rows):
        show(found)
    if out is not None:
        from lockstep.comparison.save import save

        save(found, out)
        if not printing:
            print(f"Written to {out}.")
    for sentence in broken:
        print(f"failed: {sentence}", file=sys.stderr)
    if broken:
        raise typer.Exit(1)
