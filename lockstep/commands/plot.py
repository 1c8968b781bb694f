"""`lockstep plot`."""

import sys
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer

from lockstep.commands.options import Trust, check_out
from lockstep.scenarios import ScenarioError

Results = Annotated[
    list[Path],
    typer.Argument(metavar="RESULTS…", help="What sweep, simulate, run or validate wrote with --out."),
]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", metavar="NAME", help="Draw these kinds only; repeatable.")
]
X = Annotated[str | None, typer.Option(metavar="KEY", help="The key of the x axis, such as workers.")]
Y = Annotated[str | None, typer.Option(metavar="METRIC", help="The metric to draw, such as efficiency.")]
By = Annotated[
    str | None, typer.Option(metavar="KEY", help="The key that tells lines, bars or rows apart (strategy).")
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Draw these runs only; repeatable.")
]
Where = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to write (RESULTS, in plots/).")]
Formats = Annotated[
    list[str] | None, typer.Option("--format", metavar="NAME", help="png, svg or pdf; repeatable (all).")
]


def plot(
    results: Results,
    kind: Kinds = None,
    x: X = None,
    y: Y = None,
    by: By = None,
    only: Only = None,
    out: Where = None,
    formats: Formats = None,
    trust: Trust = False,
) -> None:
    """Draw runs as pictures.

    Every kind that they can carry, or those of --kind (docs/plots.md).
    """
    out = out or (results[0] if results[0].is_dir() else results[0].parent) / "plots"
    check_out(out)
    from lockstep.analysis import plots, runs
    from lockstep.analysis.plots.only import only as keep
    from lockstep.analysis.plots.style import FORMATS

    for name in formats or []:
        if name not in FORMATS:
            raise ScenarioError(f"no format {name!r} (formats: {', '.join(FORMATS)})", key="--format")
    read = runs.read(results)
    for choice in only or []:
        read = read.only(partial(keep, choice=choice))
    options = {name: given for name, given in (("x", x), ("y", y), ("by", by)) if given is not None}
    if kind is None and y is not None:
        kind = ["metric"]
    if kind:
        figures = {str(y) if name == "metric" else name: plots.draw(name, read, options) for name in kind}
        left_out: dict[str, str] = {}
    else:
        figures, left_out = plots.pictures(read, options)
    for name, figure in figures.items():
        plots.save(figure, out / name, formats or FORMATS)
    if figures:
        print(f"Written to {out}, each as {', '.join(formats or FORMATS)}:")
        print(fill(", ".join(figures), 100, initial_indent="  ", subsequent_indent="  "))
    for name, why in left_out.items():
        print(f"{name} left out: {why}", file=sys.stderr)
