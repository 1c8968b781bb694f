"""`lockstep fit`."""

from pathlib import Path
from typing import Annotated

import typer

from lockstep import terminal
from lockstep.commands.options import File, Quiet, Set, Trust, check_out
from lockstep.printing import Csv, Json, Markdown, Printing
from lockstep.scenarios import ScenarioError


def fit(
    file: File,
    measured: Annotated[
        Path,
        typer.Option(
            metavar="TABLE.csv",
            help="What was measured: dotted keys, throughput or step_s; sd and use if you like.",
        ),
    ],
    free: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY[=LOW..HIGH]", help="A key whose value to find, and where to look; repeatable."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The profile to write.")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="So many processes; without, one a core where that pays."),
    ] = None,
    set_: Set = None,
    trust: Trust = False,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Find what a few measurements leave open.

    Brings simulation and measurement together. Writes a profile, which scenarios take over: cluster.profile.
    """
    from lockstep.fitting import fit, profile, show
    from lockstep.fitting.keys import parsed

    printing = Printing(json_, csv, markdown)
    ranges = [parsed(given) for given in free or ()]
    names = [name for name, _ in ranges]
    for name in names:
        if names.count(name) > 1:
            raise ScenarioError("is given twice; keep one", f"--free {name}")
    if out is not None:
        check_out(out.parent)
        profile.check(out)
    with terminal.progress(f"fitting to {measured.name}", quiet or bool(printing)) as progress:
        found = fit(file, measured, dict(ranges), set_ or (), jobs=jobs, progress=progress)
    written = profile.save(found, measured.name, out) if out is not None else []
    if not printing.print(found.document, lambda: found.document["rows"]):
        show.show(found, written)
