"""`lockstep verify` and `lockstep claims`: the simulator against theory and the literature."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from lockstep import terminal
from lockstep.commands.options import Csv, Json, Out, Quiet, check_out
from lockstep.printing import Printing

Cases = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="PATTERN", help="Only cases with this in their name; repeatable."),
]

Claims = Annotated[
    list[str] | None,
    typer.Option("--claim", metavar="PATTERN", help="Only claims with this in their name; repeatable."),
]


def verify(case: Cases = None, json_: Json = False, csv: Csv = False, quiet: Quiet = False) -> None:
    """Check the simulator against closed forms.

    A case that fails makes the exit status 3.
    """
    printing = Printing(json_, csv)
    from lockstep.verification import chosen, verify

    cases = chosen(case or [])
    with terminal.progress("verifying", quiet or bool(printing)) as progress:
        found = verify(cases, progress)
    if not printing.print(found, lambda: found["cases"]):
        terminal.show_verification(found)
    if found["failed"]:
        raise typer.Exit(3)


def claims(
    claim: Claims = None, out: Out = None, json_: Json = False, csv: Csv = False, quiet: Quiet = False
) -> None:
    """Try what was published about strategies, in virtual time.

    A claim that does not hold is a finding, not a failure: the exit status is 0.
    """
    printing = Printing(json_, csv)
    from lockstep.literature import chosen
    from lockstep.literature.trial import judge

    these = chosen(claim or [])
    check_out(out)
    with terminal.progress(f"trying {len(these)} claims", quiet or bool(printing)) as progress:
        found = judge(these, progress, out)
    if not printing.print(found, lambda: _checks(found)):
        terminal.show_claims(found, out)


def _checks(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was measured of each claim, for a spreadsheet."""
    for claim in found["claims"]:
        about = {"claim": claim["claim"], "verdict": claim["verdict"]}
        for check in claim["checks"]:
            low, high = check["interval"]
            figures = {key: value for key, value in check.items() if key != "interval"}
            yield about | figures | {"low": low, "high": high}
