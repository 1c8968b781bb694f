"""`lockstep chaos`: runs that are struck at random."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

import lockstep
from lockstep import terminal
from lockstep.analysis.words import count
from lockstep.commands.options import File, Quiet, Set
from lockstep.printing import Csv, Json, Markdown, Printing
from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:
    from lockstep.studies.chaos import Trial

_SHOWN = 10  # broken trials


def chaos(
    file: File,
    set_: Set = None,
    mtbf: Annotated[
        str, typer.Option(metavar="TIME", help="Somebody is struck after this time, on average.")
    ] = "5 s",
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Go on for so long; the last run ends.")
    ] = "1 min",
    simulated: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Simulate N runs with faults that are drawn instead."),
    ] = None,
    testbed: Annotated[bool, typer.Option("--testbed", help="Over the scenario's own network.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Of what is drawn.")] = 0,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Strike real runs at random, and see that each ends well.

    A run that does not end, leaves something behind, or does not add up makes the exit status 3.
    """
    from lockstep.studies.chaos import ENDS, loop

    printing = Printing(json_, csv, markdown)
    mean, long = _seconds(mtbf, "--mtbf"), _seconds(for_, "--for")
    scenario = lockstep.load(file, set_ or ())
    lockstep.check(scenario, testbed)
    doing = "striking" if simulated is None else "simulating"
    with terminal.progress(doing, quiet or bool(printing)) as progress:
        if simulated is None:
            found = loop.real(scenario, mean, long, testbed, seed, progress)
        else:
            found = loop.simulated(scenario, simulated, seed, progress)
    document = loop.document(found)
    if not printing.print(document, lambda: map(asdict, found)):
        _show(found, ENDS)
    if document["broken"]:
        raise typer.Exit(3)


def _seconds(text: str, key: str) -> float:
    from pydantic_core import PydanticCustomError

    from lockstep.scenarios.units import TIME

    try:
        return float(TIME.parse(text))
    except PydanticCustomError as error:
        raise ScenarioError(error.message(), key=key) from None


def _show(found: "list[Trial]", ends: dict[str, str]) -> None:
    strikes = sum(len(trial.struck) for trial in found)
    print(f"{count(len(found), 'run')}, struck {count(strikes, 'time')}:")
    for end, words in ends.items():
        print(f"{sum(trial.end == end for trial in found):6}  {words}")
    wrong = [trial for trial in found if trial.wrong]
    print(f"{len(wrong):6}  did not end well")
    for trial in wrong[:_SHOWN]:
        print(f"\nrun {trial.number}: {'; '.join(trial.wrong)}")
        for what in trial.struck:
            print(f"    {what}")
