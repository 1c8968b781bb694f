"""`lockstep validate --suite`."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import lockstep
from lockstep import terminal
from lockstep.commands.options import Output, check_out
from lockstep.scenarios import ScenarioError
from lockstep.truth import suite


def validate_suite(
    testbed: bool,
    limit: int | None,
    profiles: list[Path],
    measured: Path | None,
    point: str | None,
    output: Output,
) -> None:
    """Measure (or read what was measured), predict, and show how near that was; or print one point."""
    if point is not None:
        print(suite.chosen(point).yaml, end="")
        return
    out = output.out
    if out is None:
        raise ScenarioError("missing; say where the suite's measurements and figures go", key="--out")
    check_out(out)
    if measured is None:
        first = suite.chosen("asynchronous-w1-s1-network-none").scenario
        lockstep.check(first, testbed)  # what this machine cannot do is said before anything is written

        def tell(line: str) -> None:
            print(line, file=sys.stderr, flush=True)

        suite.measure_first(out, testbed, limit, profiles, None if output.quiet or output.printing else tell)
        measured, limit = out, None
    elif testbed:
        raise ScenarioError("nothing is measured with --measured; leave it out", key="--testbed")
    source = suite.read(measured, profiles, limit)
    with output.progress("predicting") as progress:
        summary = suite.recompute(source, out, progress)
    if not output.printing.print(summary, lambda: _rows(summary)):
        terminal.show_accuracy(summary, out)


def _rows(summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The errors of each group of points, for a spreadsheet."""
    for group, levels in {"all": summary["errors"], **summary["by"]}.items():
        for level, errors in levels.items():
            yield {"group": group, "level": level, **errors}
