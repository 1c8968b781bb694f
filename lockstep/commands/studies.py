"""`lockstep verify`, `claims`, `validate --suite` and `--published`: against theory, claims and reality."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lockstep
from lockstep import terminal
from lockstep.analysis.words import count
from lockstep.commands.options import Out, Output, Quiet, check_out
from lockstep.printing import Csv, Json, Markdown, Printing
from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:
    from lockstep.scenarios import Scenario

Cases = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="PATTERN", help="Only cases with this in their name; repeatable."),
]

Claims = Annotated[
    list[str] | None,
    typer.Option("--claim", metavar="PATTERN", help="Only claims with this in their name; repeatable."),
]


def verify(
    case: Cases = None,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Check the simulator against closed forms.

    A case that fails makes the exit status 3.
    """
    printing = Printing(json_, csv, markdown)
    from lockstep.studies.verification import chosen, table, verify

    cases = chosen(case or [])
    with terminal.progress("verifying", quiet or bool(printing)) as progress:
        found = verify(cases, progress)
    if not printing.print(found, lambda: found["cases"]):
        table.show(found)
    if found["failed"]:
        raise typer.Exit(3)


def claims(
    claim: Claims = None,
    out: Out = None,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Try what was published about strategies, in virtual time.

    A claim that does not hold is a result, not a failure: the exit status is 0.
    """
    printing = Printing(json_, csv, markdown)
    from lockstep.studies.reproductions import chosen, table
    from lockstep.studies.reproductions.experiment import judge

    these = chosen(claim or [])
    check_out(out)
    with terminal.progress(f"trying {len(these)} claims", quiet or bool(printing)) as progress:
        found = judge(these, progress, out)
    if not printing.print(found, lambda: _checks(found)):
        table.show(found, out)


def _checks(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was measured of each claim, for a spreadsheet."""
    for claim in found["claims"]:
        about = {"claim": claim["claim"], "verdict": claim["verdict"]}
        for check in claim["checks"]:
            low, high = check["interval"]
            values = {key: value for key, value in check.items() if key != "interval"}
            yield about | values | {"low": low, "high": high}


def validate_suite(
    testbed: bool,
    limit: int | None,
    profiles: list[Path],
    measured: Path | None,
    point: str | None,
    which: str,
    output: Output,
    attempts: int,
) -> None:
    """Measure (or read what was measured), predict, and show how near that was; or print one point."""
    from lockstep.analysis.written import said
    from lockstep.studies.accuracy_suite import suite, tables

    if point is not None:
        print(suite.chosen(point).yaml, end="")
        return
    out = output.out
    if out is None:
        raise ScenarioError("missing; say where the suite's measurements and tables go", key="--out")
    check_out(out)

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    told = None if output.quiet or output.printing else tell
    if measured is None:
        first = next(iter(suite.SETS[which].points(None)))
        lockstep.check(first.scenario, testbed)  # what this machine cannot do is said first
        suite.measure_first(out, testbed, limit, profiles, told, which, attempts, _calibrated)
        measured, limit = out, None
    elif testbed or which:
        useless = "--testbed" if testbed else which
        raise ScenarioError("nothing is measured with --measured; leave it out", key=useless)
    source = suite.read(measured, profiles, limit)
    for rate, points in source.borrowed.items() if told else ():
        tell(
            f"{said(rate, 'cluster.network.bandwidth')}: no profile is of this bandwidth; "
            f"{count(points, 'point')} predicted with one of another (--profile can be given for each)"
        )
    with output.progress("predicting") as progress:
        summary = suite.recompute(source, out, progress)
    if not output.printing.print(summary, lambda: _errors(summary)):
        tables.show(summary, out)


def _calibrated(scenario: "Scenario") -> str:
    """A profile of a scenario's testbed."""
    from lockstep.calibration import calibrate
    from lockstep.calibration.profile_file import text

    return text(calibrate([scenario], ["network"], testbed=True).profile)


def _errors(summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The errors of each group of points, for a spreadsheet."""
    for group, levels in {"all": summary["errors"], **summary["by"]}.items():
        for level, errors in levels.items():
            yield {"group": group, "level": level, **errors}


def validate_published(only: list[str], output: Output) -> None:
    """Fit and predict what others measured, and show how near that was."""
    from lockstep.studies import published

    tables = published.chosen(only)
    check_out(output.out)
    with output.progress(f"fitting and predicting {count(len(tables), 'published table')}") as progress:
        found = published.published(tables, progress, output.out)
    if not output.printing.print(found, lambda: _rows(found)):
        published.show(found, output.out)


def _rows(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of all tables, for a spreadsheet."""
    for table in found["tables"]:
        for series in table["series"]:
            for row in series["rows"]:
                yield {"table": table["name"], "series": series["name"], **row}
