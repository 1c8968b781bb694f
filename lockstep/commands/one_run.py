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
    Output,
    Quiet,
    Replay,
    Set,
    Tensorboard,
    Testbed,
    Timeline,
    keep,
    load,
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
    output = Output(out, json_, quiet, tensorboard, timeline)
    if replay is not None:
        if file is not None or set_:
            context.fail("--replay has a scenario of its own: leave out FILE and --set")
        _replay(replay, output)
    elif file is None:
        context.fail("missing argument 'FILE'")
    else:
        _one_run(lockstep.simulate, "predicting", load(file, set_ or [], testbed=False), output)


def _replay(folder: Path, output: Output) -> None:
    """Repeat a real run; what comes of it is written and shown even if it is something else."""
    from lockstep import replaying

    if output.out is not None and output.out.resolve() == folder.resolve():
        raise ScenarioError("that is the real run's folder; give another one", key="--out")
    run = replaying.load(folder)
    result = _one_run(lambda _, progress: replaying.replay(run, progress), "replaying", run.scenario, output)
    replaying.check(run, result)
    if not output.json:
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
    output = Output(out, json_, quiet, tensorboard, timeline)
    _one_run(engine, "measuring", load(file, set_ or [], testbed), output)


def _one_run(engine: Callable[..., Result], doing: str, scenario: Scenario, output: Output) -> Result:
    output.check()
    out, tensorboard = output.out, output.tensorboard
    try:
        with output.progress(f"{doing} {scenario.name}") as progress:
            result = engine(scenario, progress)
    except (RuntimeError, KeyboardInterrupt) as error:
        keep(scenario, getattr(error, "records", None), out)
        raise
    if out is not None:
        result.save(out)
    if tensorboard is not None:
        result.to_tensorboard(tensorboard)
    if output.json:
        print(result.to_json())
    else:
        terminal.show(result, out)
        if scenario.sweep:
            print("note: this was the scenario itself; 'lockstep sweep' runs its sweep", file=sys.stderr)
        if tensorboard is not None:
            print(f"Scalars written to {tensorboard}: tensorboard --logdir {tensorboard}")
    output.write_timeline([result])
    return result
