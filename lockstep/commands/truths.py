"""`lockstep verify` and `lockstep claims`: the simulator against theory and the literature."""

import json
from typing import Annotated

import typer

from lockstep import terminal
from lockstep.commands.options import Json, Out, Quiet, check_out

Cases = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="PATTERN", help="Only cases with this in their name; repeatable."),
]

Claims = Annotated[
    list[str] | None,
    typer.Option("--claim", metavar="PATTERN", help="Only claims with this in their name; repeatable."),
]


def verify(case: Cases = None, json_: Json = False, quiet: Quiet = False) -> None:
    """Check the simulator against closed forms.

    A case that fails makes the exit status 3.
    """
    from lockstep.verification import chosen, verify

    cases = chosen(case or [])
    with terminal.progress("verifying", quiet or json_) as progress:
        found = verify(cases, progress)
    if json_:
        print(json.dumps(found, allow_nan=False))
    else:
        terminal.show_verification(found)
    if found["failed"]:
        raise typer.Exit(3)


def claims(claim: Claims = None, out: Out = None, json_: Json = False, quiet: Quiet = False) -> None:
    """Try what was published about strategies, in virtual time.

    A claim that does not hold is a finding, not a failure: the exit status is 0.
    """
    from lockstep.literature import chosen
    from lockstep.literature.trial import judge

    these = chosen(claim or [])
    check_out(out)
    with terminal.progress(f"trying {len(these)} claims", quiet or json_) as progress:
        found = judge(these, progress, out)
    if json_:
        print(json.dumps(found, allow_nan=False))
    else:
        terminal.show_claims(found, out)
