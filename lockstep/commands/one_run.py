"""`lockstep simulate` and `lockstep run`."""

import atexit
import gc
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import lockstep
from lockstep import scenarios, terminal
from lockstep.commands.options import (
    Deadline,
    MaybeAttempts,
    MaybeFile,
    Out,
    Output,
    Quiet,
    Replay,
    Resume,
    Set,
    Tensorboard,
    Testbed,
    Timeline,
    Timeout,
    Trust,
    WhatIf,
    Why,
    Yes,
    all_is_loaded,
    ask_first,
    load,
    say_what_is_left,
)
from lockstep.executor import signals
from lockstep.printing import Csv, Json, Markdown, Printing
from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:
    from lockstep.analysis.result import Result
    from lockstep.scenarios import Scenario


def simulate(
    context: typer.Context,
    file: MaybeFile = None,
    set_: Set = None,
    replay: Replay = None,
    why: Why = False,
    what_if: WhatIf = False,
    out: Out = None,
    tensorboard: Tensorboard = None,
    timeline: Timeline = None,
    timeout: Timeout = None,
    trust: Trust = False,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
    yes: Yes = False,
) -> None:
    """Predict a run in virtual time, or repeat a real one."""
    output = Output(out, Printing(json_, csv, markdown), quiet, tensorboard, timeline)
    if replay is not None:
        if file is not None or set_:
            context.fail("--replay has a scenario of its own: leave out FILE and --set")
        if why:
            context.fail("--why tries what is predicted: leave out --replay, and give FILE")
        if what_if:
            context.fail("--what-if tries what is predicted: leave out --replay, and give FILE")
        with signals.within(timeout):
            _replay(replay, output)
        return
    if file is None:
        context.fail("missing argument 'FILE'")
    from lockstep import work

    scenario = load(file, set_ or [], testbed=False)
    output.check()
    if not scenario.workload.learns:
        atexit.register(gc.freeze)  # nothing of what is there at its end is looked through for garbage
    with scenarios.placing(file, set_ or []):
        ask_first(lambda: work.simulating(scenario, why, what_if), yes, timeout)
        with signals.within(timeout):
            _one_run(lockstep.simulate, "predicting", scenario, output, why, what_if)


def _replay(folder: Path, output: Output) -> None:
    """Repeat a real run; what comes of it is written and shown even if it is something else."""
    from lockstep import replaying

    if output.out is not None and output.out.resolve() == folder.resolve():
        raise ScenarioError("that is the real run's folder; give another one", key="--out")
    run = replaying.load(folder)
    output.check()
    result = _one_run(lambda _, progress: replaying.replay(run, progress), "replaying", run.scenario, output)
    replaying.check(run, result)
    if not output.printing:
        print(replaying.agreed(result))


def run(
    context: typer.Context,
    file: MaybeFile = None,
    set_: Set = None,
    testbed: Testbed = False,
    resume: Resume = None,
    out: Out = None,
    tensorboard: Tensorboard = None,
    timeline: Timeline = None,
    timeout: Timeout = None,
    deadline: Deadline = None,
    attempts: MaybeAttempts = None,
    trust: Trust = False,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
    yes: Yes = False,
) -> None:
    """Measure a run with real processes on this machine."""
    if resume is None and file is None:
        context.fail("missing argument 'FILE'")
    if resume is not None and (file is not None or set_ or out is not None or attempts is not None):
        context.fail(
            "--resume goes on with what is in its folder: leave out FILE, --set, --out and --attempts"
        )
    out = out if resume is None else resume
    output = Output(out, Printing(json_, csv, markdown), quiet, tensorboard, timeline)
    waiting = terminal.noting(quiet or bool(output.printing))
    engine = partial(
        lockstep.run,
        testbed=testbed,
        out=out,
        deadline=deadline,
        waiting=waiting,
        attempts=1 if timeout is not None and attempts is None else attempts,
        resume=resume is not None,
    )
    from lockstep.executor import forking

    with forking.ahead():  # what takes longest is first
        from lockstep import work

        begun = file if resume is None else str(_begun(resume))
        assert begun is not None
        scenario = load(begun, set_ or [], testbed, beside=resume is None)
        output.check()
        with scenarios.placing(begun, set_ or []):
            ask_first(lambda: work.running(scenario, testbed), yes, timeout)
    with scenarios.placing(begun, set_ or []), signals.within(timeout):
        _one_run(engine, "measuring", scenario, output)
    if not testbed and not output.printing and scenario.cluster.network != scenarios.Network():
        from lockstep.analysis.report.asked import network

        said = f"inside this machine, not over the scenario's network ({network(scenario)})"
        print(f"note: it ran {said}: --testbed builds that one", file=sys.stderr)


def _begun(folder: Path) -> Path:
    """The scenario of the run in a folder that was killed."""
    from lockstep.analysis import incomplete  # which loads pandas

    return incomplete.scenario_of(folder)


def _one_run(
    engine: "Callable[..., Result]",
    doing: str,
    scenario: "Scenario",
    output: Output,
    why: bool = False,
    what_if: bool = False,
) -> "Result":
    all_is_loaded()
    out, tensorboard = output.out, output.tensorboard
    try:
        with output.progress(f"{doing} {scenario.name}") as progress:
            result = engine(scenario, progress)
    except (RuntimeError, KeyboardInterrupt, signals.TimedOut) as error:
        say_what_is_left(error, out)
        raise
    if out is not None and result.engine == "simulator":  # a real run's is there
        result.save(out)
    tried = None
    if why:
        with output.progress("trying what would shorten it") as progress:
            tried = lockstep.why(scenario, progress)
    way = None
    if what_if:
        with output.progress("trying the way to the ideal") as progress:
            way = lockstep.what_if(scenario, progress)
        if out is not None and way.steps[0].seconds is not None:
            from lockstep.analysis import plots

            plots.save(plots.what_if(way), out / "what-if")
    if tensorboard is not None:
        result.to_tensorboard(tensorboard)
    more: dict[str, Any] = {} if tried is None else {"why": [asdict(each) for each in tried]}
    more |= {} if way is None else {"what_if": asdict(way)}
    if not output.printing.print({**result.metrics, **more}, lambda: [result.row]):
        terminal.show(result, out)
        if tried is not None:
            terminal.show_gains(tried)
        if way is not None:
            terminal.show_what_if(way, out)
        if scenario.sweep:
            print("note: this was the scenario itself; 'lockstep sweep' runs its sweep", file=sys.stderr)
        if tensorboard is not None:
            print(f"Scalars written to {tensorboard}: tensorboard --logdir {tensorboard}")
    output.write_timeline([result])
    return result
