"""`lockstep validate`."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lockstep
from lockstep import scenarios, terminal
from lockstep.attempts import ATTEMPTS
from lockstep.commands.options import (
    Attempts,
    MaybeFile,
    Names,
    Out,
    Output,
    Quiet,
    Set,
    Testbed,
    Timeline,
    Trust,
    Yes,
    ask_first,
    load,
    say_what_is_left,
)
from lockstep.printing import Csv, Json, Markdown, Printing
from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:
    from lockstep.analysis.result import Result
    from lockstep.scenarios import Scenario

Suite = Annotated[bool, typer.Option("--suite", help="The suite of scenarios, instead of a FILE.")]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="The suite's first N points (150).")]
Profiles = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Predict the suite with this calibrated profile; repeatable."),
]
Measured = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Predict what the suite has measured there; measure nothing."),
]
Sweep = Annotated[
    bool, typer.Option("--sweep", help="Compare the points of the file's sweep, each of another strategy.")
]
Pipelines = Annotated[bool, typer.Option("--pipelines", help="The suite's points of split models.")]
Shared = Annotated[bool, typer.Option("--tensor", help="The suite's points of layers that devices share.")]
Crowded = Annotated[
    bool, typer.Option("--crowded", help="The suite's points whose messages fill the machine's cores.")
]
Published = Annotated[
    bool, typer.Option("--published", help="Tables that others measured, instead of a FILE; nothing is run.")
]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="NAME", help="This published table; repeatable.")
]
OnePoint = Annotated[
    str | None, typer.Option("--point", metavar="NAME", help="Print this point's scenario file.")
]


def validate(
    file: MaybeFile = None,
    set_: Set = None,
    strategy: Names = None,
    sweep: Sweep = False,
    testbed: Testbed = False,
    out: Out = None,
    timeline: Timeline = None,
    trust: Trust = False,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
    yes: Yes = False,
    attempts: Attempts = ATTEMPTS,
    suite: Suite = False,
    limit: Limit = None,
    profile: Profiles = None,
    measured: Measured = None,
    point: OnePoint = None,
    pipelines: Pipelines = False,
    tensor: Shared = False,
    crowded: Crowded = False,
    published: Published = False,
    only: Only = None,
) -> None:
    """Predict and measure, side by side.

    The prediction is for the network that the real run has: this machine's loopback, measured first, or with
    --testbed the scenario's own. With --suite: a grid of scenarios instead of a FILE (docs/accuracy.md). With
    --published: clusters that others measured (docs/published.md).
    """
    output = Output(out, Printing(json_, csv, markdown), quiet, timeline=timeline)
    one_run = {"FILE": file, "--set": set_, "--strategy": strategy, "--sweep": sweep, "--timeline": timeline}
    of_the_suite: dict[str, Any] = {"limit": limit, "profile": profile, "measured": measured, "point": point}
    sets = {"pipelines": pipelines or None, "tensor": tensor or None, "crowded": crowded or None}
    of_the_suite |= sets
    if published:
        from lockstep.commands.studies import validate_published

        others = {"--suite": suite, "--testbed": testbed}
        others |= {f"--{option}": given is not None for option, given in of_the_suite.items()}
        _leave_out("--published", one_run | others)
        validate_published(only or [], output)
        return
    _leave_out("", {"--only": only}, "is for published tables; say --published too")
    if suite:
        from lockstep.commands.studies import validate_suite

        _leave_out("--suite", one_run)
        which = [f"--{option}" for option, given in sets.items() if given]
        if len(which) > 1:
            raise ScenarioError(f"is a set of points of its own; leave {which[0]} out", key=which[1])
        validate_suite(testbed, limit, profile or [], measured, point, "".join(which), output, attempts)
        return
    for option, given in of_the_suite.items():
        if given is not None:
            raise ScenarioError("is for the suite; say --suite too", key=f"--{option}")
    if file is None:
        raise ScenarioError("give a scenario file, --suite or --published", key="FILE")
    points = _points(file, set_ or [], strategy or [], sweep, testbed)
    with scenarios.placing(file, set_ or []):
        _validate(points, bool(strategy or sweep), testbed, output, yes, attempts)


def _leave_out(option: str, given: dict[str, Any], problem: str = "") -> None:
    for key, useless in given.items():
        if useless:
            raise ScenarioError(problem or f"means nothing to {option}; leave it out", key=key)


def _points(
    file: str, overrides: list[str], names: list[str], sweep: bool, testbed: bool
) -> "list[Scenario]":
    """The scenarios to compare, each of another strategy."""
    from lockstep.selection import only_its_own

    if sweep:
        if names:
            raise ScenarioError("the sweep says which strategies; leave out one of the two", key="--strategy")
        from lockstep.sweeping.points import plan

        points = list(
            {run.point: run.scenario for run in plan(file, overrides, "executor", testbed).runs}.values()
        )
        if len({point.strategy.name for point in points}) < len(points):
            raise ScenarioError("has several points of one strategy; compare one of each", key="--sweep")
        return points
    loaded = [load(file, [*overrides, f"strategy.name={name}"], testbed) for name in dict.fromkeys(names)]
    return [only_its_own(point) for point in loaded] or [load(file, overrides, testbed)]


def _validate(
    points: "list[Scenario]", several: bool, testbed: bool, output: Output, yes: bool, attempts: int
) -> None:
    from lockstep import compared, validation, work
    from lockstep.loopback import measure_loopback
    from lockstep.others import Others

    output.check()
    out = output.out

    ask_first(lambda: work.of_many(points, partial(work.validating, testbed=testbed)), yes)
    there, which = validation.on_testbed, validation.described(points[0].cluster)
    if not testbed:
        with output.progress("measuring the loopback"):
            loopback = measure_loopback(max(validation.parameters(point) for point in points))
        there = partial(validation.on_loopback, loopback=loopback)
        which = f"this machine's loopback, measured just now: {loopback}"
    if not output.printing:
        print(f"Predicting for {which}.")
        if rates := compared.rates(points):
            print(f"Learning rates: {rates}.")
    pairs: list[tuple[Result, Result]] = []
    others = Others()
    try:
        for point in points:
            name = point.strategy.name
            with output.progress(f"predicting {name}") as progress:
                on = there(point)
                predicted = lockstep.simulate(on, progress)
            if out is not None:
                predicted.save(out / name / "predicted")
            with output.progress(f"measuring {name}") as progress:
                its = out and out / name / "measured"
                again: Any = {"attempts": attempts, "overruns_expected": validation.overruns_expected(on)}
                measured = lockstep.run(point, progress, testbed=testbed, out=its, **again)
                pairs.append((predicted, measured))
    except (RuntimeError, KeyboardInterrupt) as error:
        say_what_is_left(error, out and out / point.strategy.name / "measured")
        raise
    finally:
        comparisons = [validation.compare(*pair) for pair in pairs]
        if out is not None and pairs:
            from lockstep.analysis.plots import predicted_and_measured

            predicted_and_measured(pairs, out / "validation")
            text = json.dumps({"points": comparisons}, allow_nan=False)
            (out / "validation.json").write_text(text + "\n", encoding="utf-8")
        output.write_timeline([result for pair in pairs for result in pair])
    document = {"points": comparisons} if several else comparisons[0]
    if not output.printing.print(document, lambda: comparisons):
        terminal.show_comparison(comparisons)
        if out is not None:
            print(
                f"Written to {out}: validation.png, validation.svg, validation.json, and each run's records."
            )
        if compared.far_off(comparisons):
            print(f"Some errors are over {compared.LARGE:.0%}. {others.said()}")
        if answer := compared.answer(comparisons):
            print(answer)
