"""`lockstep calibrate`."""

import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import lockstep
from lockstep import scenarios, terminal
from lockstep.commands.options import Quiet, Set, Trust, check_out
from lockstep.printing import Csv, Json, Markdown, Printing
from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:
    from lockstep.scenarios import Scenario


def calibrate(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Scenarios whose workloads to measure; quickstart if none."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The profile to write.")] = Path("profile.yaml"),
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help="compute, apply, codecs, cores or network: measure that, and keep the rest; repeatable.",
        ),
    ] = None,
    testbed: Annotated[
        bool, typer.Option("--testbed", help="The network of a testbed, not the loopback; needs root.")
    ] = False,
    hosts: Annotated[
        str, typer.Option(metavar="A,B", help="The network between these hosts, not the loopback.")
    ] = "",
    set_: Set = None,
    trust: Trust = False,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Measure this machine.

    Writes a profile, which scenarios take over: cluster.profile.
    """
    printing = Printing(json_, csv, markdown)
    from lockstep.calibration import calibrate, save, table
    from lockstep.scenarios.profile import OtherCode

    files = files or ["quickstart"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherCode)  # of the profile that is made anew
        loaded = [_loaded(file, set_ or []) for file in files]
    check_out(out.parent)
    save.check(out)
    told = scenarios.placing(files[0], set_ or []) if len(files) == 1 else nullcontext()
    with told, terminal.progress("calibrating", quiet or bool(printing)) as progress:
        found = calibrate(loaded, only or (), progress, testbed=testbed, hosts=hosts)
    profile = save.over(out, found) if only else found.profile
    written = save.save(found, profile, out)
    if not printing.print(profile, lambda: table.rows(profile)):
        table.show(profile, written)


def _loaded(file: str, overrides: list[str]) -> "Scenario":
    """A scenario, which may lack the time that is to be measured: its profile is of another workload."""
    try:
        return lockstep.load(file, overrides)
    except ScenarioError as error:
        if error.key != "cluster.compute" or not error.problem.startswith("missing"):
            raise
        return lockstep.load(file, [*overrides, "cluster.compute=measured"])
