"""`lockstep validate`."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import lockstep
from analysis.records import Result
from lockstep import terminal
from lockstep.commands.options import (
    Json,
    MaybeFile,
    Names,
    Out,
    Output,
    Quiet,
    Set,
    Testbed,
    Timeline,
    keep,
    load,
)
from lockstep.selection import only_its_own
from scenarios import ScenarioError

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
OnePoint = Annotated[
    str | None, typer.Option("--point", metavar="NAME", help="Print this point's scenario file.")
]


def validate(
    file: MaybeFile = None,
    set_: Set = None,
    strategy: Names = None,
    testbed: Testbed = False,
    out: Out = None,
    timeline: Timeline = None,
    json_: Json = False,
    quiet: Quiet = False,
    suite: Suite = False,
    limit: Limit = None,
    profile: Profiles = None,
    measured: Measured = None,
    point: OnePoint = None,
) -> None:
    """Predict and measure, side by side.

    The prediction is for the network that the real run has: this machine's loopback, measured first, or with
    --testbed the scenario's own. With --suite: a grid of scenarios instead of a FILE (docs/accuracy.md).
    """
    output = Output(out, json_, quiet, timeline=timeline)
    if suite:
        from lockstep.commands.suite import validate_suite

        one_run = {"FILE": file, "--set": set_, "--strategy": strategy, "--timeline": timeline}
        for key, useless in one_run.items():
            if useless:
                raise ScenarioError("means nothing to --suite; leave it out", key=key)
        validate_suite(testbed, limit, profile or [], measured, point, output)
        return
    of_the_suite: dict[str, Any] = {"limit": limit, "profile": profile, "measured": measured, "point": point}
    for option, given in of_the_suite.items():
        if given is not None:
            raise ScenarioError("is for the suite; say --suite too", key=f"--{option}")
    if file is None:
        raise ScenarioError("give a scenario file, or --suite", key="FILE")
    _validate_one(file, set_, strategy, testbed, output)


def _validate_one(
    file: str, set_: list[str] | None, strategy: list[str] | None, testbed: bool, output: Output
) -> None:
    overrides, names = set_ or [], dict.fromkeys(strategy or [])
    loaded = [load(file, [*overrides, f"strategy.name={name}"], testbed) for name in names]
    points = [only_its_own(point) for point in loaded] or [load(file, overrides, testbed)]
    output.check()
    out = output.out
    from analysis.plots import predicted_and_measured
    from lockstep import validation

    there, which = validation.on_testbed, validation.described(points[0].cluster)
    if not testbed:
        with output.progress("measuring the loopback"):
            loopback = validation.measure_loopback(max(validation.parameters(point) for point in points))
        there = partial(validation.on_loopback, loopback=loopback)
        which = f"this machine's loopback, measured just now: {loopback}"
    if not output.json:
        print(f"Predicting for {which}.")
    pairs: list[tuple[Result, Result]] = []
    try:
        for point in points:
            name = point.strategy.name
            with output.progress(f"predicting {name}") as progress:
                predicted = lockstep.simulate(there(point), progress)
            if out is not None:
                predicted.save(out / name / "predicted")
            with output.progress(f"measuring {name}") as progress:
                pairs.append((predicted, lockstep.run(point, progress, testbed=testbed)))
            if out is not None:
                pairs[-1][1].save(out / name / "measured")
    except (RuntimeError, KeyboardInterrupt) as error:
        keep(point, getattr(error, "records", None), out and out / name / "measured")
        raise
    finally:
        comparisons = [validation.compare(*pair) for pair in pairs]
        if out is not None and pairs:
            predicted_and_measured(pairs, out / "validation")
            text = json.dumps({"points": comparisons}, allow_nan=False)
            (out / "validation.json").write_text(text + "\n", encoding="utf-8")
        output.write_timeline([result for pair in pairs for result in pair])
    if output.json:
        print(json.dumps(comparisons[0] if not strategy else {"points": comparisons}, allow_nan=False))
    else:
        terminal.show_comparison(comparisons)
        if out is not None:
            print(
                f"Written to {out}: validation.png, validation.svg, validation.json, and each run's records."
            )
