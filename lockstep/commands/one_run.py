"""`lockstep simulate` and `lockstep run`."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import typer

import lockstep
from analysis.records import Result
from lockstep import terminal
from lockstep.commands.options import (
    File,
    Json,
    MaybeFile,
    Out,
    Quiet,
    Replay,
    Set,
    Tensorboard,
    Testbed,
    Timeline,
    check_results,
    check_tensorboard,
    check_timeline,
    keep,
    load,
    write_timeline,
)
from scenarios import Scenario, ScenarioError


def simulate(
    context: typer.Context,
    file: MaybeFile = None,
    set_: Set = None,
    replay: Replay = None,
    out: Out = None,
    tensorboard: Tensorboard = None,
    timeline: Timeline = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict a run in virtual time, or repeat a real one."""
    if replay is not None:
        if file is not None or set_:
            context.fail("--replay has a scenario of its own: leave out FILE and --set")
        _replay(replay, out, tensorboard, timeline, json_, quiet)
    elif file is None:
        context.fail("missing argument 'FILE'")
    else:
        _one_run(
            lockstep.simulate,
            "predicting",
            load(file, set_ or [], testbed=False),
            out,
            tensorboard,
            timeline,
            json_,
            quiet,
        )


def _replay(
    folder: Path, out: Path | None, tensorboard: Path | None, timeline: Path | None, json_: bool, quiet: bool
) -> None:
    """Repeat a real run; what comes of it is written and shown even if it is something else."""
    from lockstep import replaying

    if out is not None and out.resolve() == folder.resolve():
        raise ScenarioError("that is the real run's folder; give another one", key="--out")
    run = replaying.load(folder)
    repeat = partial(replaying.replay, run)
    result = _one_run(
        lambda _, progress: repeat(progress),
        "replaying",
        run.scenario,
        out,
        tensorboard,
        timeline,
        json_,
        quiet,
    )
    replaying.check(run, result)
    if not json_:
        print(replaying.agreed(result))


def run(
    file: File,
    set_: Set = None,
    testbed: Testbed = False,
    out: Out = None,
    tensorboard: Tensorboard = None,
    timeline: Timeline = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a run with real processes on this machine."""
    engine = partial(lockstep.run, testbed=testbed)
    _one_run(engine, "measuring", load(file, set_ or [], testbed), out, tensorboard, timeline, json_, quiet)


def _one_run(
    engine: Callable[..., Result],
    doing: str,
    scenario: Scenario,
    out: Path | None,
    tensorboard: Path | None,
    timeline: Path | None,
    json_: bool,
    quiet: bool,
) -> Result:
    check_results(out)
    check_tensorboard(tensorboard)
    check_timeline(timeline)
    try:
        with terminal.progress(f"{doing} {scenario.name}", quiet or json_) as progress:
            result = engine(scenario, progress)
    except (RuntimeError, KeyboardInterrupt) as error:
        keep(scenario, getattr(error, "records", None), out)
        raise
    if out is not None:
        result.save(out)
    if tensorboard is not None:
        result.to_tensorboard(tensorboard)
    if json_:
        print(result.to_json())
    else:
        terminal.show(result, out)
        if scenario.sweep:
            print("note: this was the scenario itself; 'lockstep sweep' runs its sweep", file=sys.stderr)
        if tensorboard is not None:
            print(f"Scalars written to {tensorboard}: tensorboard --logdir {tensorboard}")
    write_timeline([result], timeline, json_)
    return result
