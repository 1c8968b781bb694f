"""`lockstep recommend`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lockstep
from lockstep import terminal
from lockstep.commands.options import (
    File,
    Out,
    Quiet,
    Set,
    Testbed,
    Trust,
    Yes,
    ask_first,
    check_results,
    load,
)
from lockstep.printing import Csv, Json, Markdown, Printing

if TYPE_CHECKING:
    from lockstep.analysis.result import Result
    from lockstep.recommendation import Recommendation
    from lockstep.scenarios import Scenario
    from lockstep.work import Work

Target = Annotated[
    str | None,
    typer.Option(metavar="WHAT", help="time (to the target in stop), throughput, machine-hours or cost."),
]
Budget = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Candidates to try; 100, or 200 if they learn, if not given."),
]
AtMost = Annotated[
    str | None,
    typer.Option(metavar="USD", help="What it may cost, such as '500 USD' (docs/cost.md)."),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--strategy", metavar="NAME", help="Search these strategies only; repeatable."),
]
Top = Annotated[
    int, typer.Option("--validate-top", metavar="K", min=0, help="Run the best K with real processes too.")
]
Jobs = Annotated[int | None, typer.Option(metavar="N", min=1, help="How many processes; all cores if none.")]


def recommend(
    file: File,
    set_: Set = None,
    target: Target = None,
    budget: Budget = None,
    at_most: AtMost = None,
    strategy: Only = None,
    validate_top: Top = 0,
    testbed: Testbed = False,
    jobs: Jobs = None,
    out: Out = None,
    trust: Trust = False,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
    yes: Yes = False,
) -> None:
    """Find the strategy for a cluster and a workload.

    Searches strategies and their settings by simulation, ranks the best with fresh seeds, and says what would
    change the answer (docs/recommend.md).
    """
    printing = Printing(json_, csv, markdown)
    scenario = load(file, set_ or [], testbed and bool(validate_top), fits=False)
    check_results(out)
    from lockstep.recommendation import Recommendation
    from lockstep.recommendation.ranking import best
    from lockstep.recommendation.show import as_json, save, show

    found = Recommendation(scenario, target, strategy or (), jobs, at_most)  # type: ignore[arg-type]
    ask_first(lambda: _work(found, budget, validate_top, testbed, jobs), yes)
    document: dict[str, Any] = {}
    try:
        with terminal.progress(f"simulating {scenario.name}", quiet or bool(printing)) as progress:
            found.run(budget, progress)
        if validate_top and not printing:
            show(found)
        if validate_top:
            first = best(found.ranking)
            others = [each for each in found.ranking if each.candidate != first.candidate]
            chosen = [found.scenario_of(each) for each in [first, *others][:validate_top]]
            document["validated"] = _validated(chosen, testbed, quiet, printing, out)
    finally:  # an interrupted search too leaves what it has found
        if found.ranking:
            document = {**as_json(found), **document}
            if out is not None:
                save(found, out, document)
            if not printing.print(document, lambda: document["ranking"]) and not validate_top:
                show(found)
            if out is not None and not printing:
                print(f"Written to {out}: recommendation.json, best.yaml, results.parquet, scenario.yaml.")


def _work(found: "Recommendation", budget: int | None, top: int, testbed: bool, jobs: int | None) -> "Work":
    """That of so many simulations, and of the runs that are asked for."""
    from lockstep import work
    from lockstep.pool import cores

    count = found.expected(budget)
    runs = work.of_many(found.usual(), work.simulating, count=count, at_once=jobs or cores())
    return runs + work.validating(found.scenario, testbed).times(top) if top else runs


def _validated(
    chosen: "list[Scenario]", testbed: bool, quiet: bool, printing: Printing, out: Path | None
) -> list[dict[str, Any]]:
    """Run these for real, each held against a prediction for the network that the run had."""
    from lockstep import validation
    from lockstep.loopback import measure_loopback

    there = validation.on_testbed
    if not testbed:
        with terminal.progress("measuring the loopback", quiet or bool(printing)):
            loopback = measure_loopback(max(validation.parameters(each) for each in chosen))
        there = partial(validation.on_loopback, loopback=loopback)
        if not printing:
            print(f"\nRun for real, predicted again for this machine's loopback: {loopback}")
    pairs: list[tuple[Result, Result]] = []
    for place, each in enumerate(chosen, 1):
        name = each.strategy.name
        with terminal.progress(f"measuring {name}", quiet or bool(printing)) as progress:
            on = there(each)
            expected = validation.overruns_expected(on)
            measured = lockstep.run(each, progress, testbed=testbed, overruns_expected=expected)
            pair = lockstep.simulate(on), measured
        pairs.append(pair)
        if out is not None:
            for kind, result in zip(("predicted", "measured"), pair, strict=True):
                result.save(out / "validated" / f"{place}-{name}" / kind)
    compared = [validation.compare(*pair) for pair in pairs]
    if not printing:
        terminal.show_comparison(compared)
    return compared
