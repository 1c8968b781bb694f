"""The command line. Exit status: 0 fine, 2 bad input, 3 the run failed, 130 interrupted."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer

import lockstep
import scenarios as scenario_files
from analysis.records import Result, save_records
from lockstep import terminal
from scenarios import Scenario, ScenarioError
from strategies import STRATEGIES

app = typer.Typer(
    help="Predict and measure data-parallel training: one strategy, two clocks.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A scenario file, or a name that 'lockstep scenarios' lists."),
]
MaybeFile = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="A scenario file or name, unless an option stands for it."),
]
Replay = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Repeat the real run whose --out this is, instead of FILE."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as cluster.workers=8; repeatable."),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to write the results.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--strategy", metavar="NAME", help="Compare these instead of the file's; repeatable."),
]
Testbed = Annotated[
    bool,
    typer.Option("--testbed", help="Over the scenario's own network, built on this machine; needs root."),
]

Suite = Annotated[bool, typer.Option("--suite", help="The suite of scenarios, instead of a FILE.")]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="The suite's first N points (150).")]
Profile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Predict the suite with this calibrated profile.")
]
Measured = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Predict what the suite has measured there; measure nothing."),
]
OnePoint = Annotated[
    str | None, typer.Option("--point", metavar="NAME", help="Print this point's scenario file.")
]

Cases = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="PATTERN", help="Only cases with this in their name; repeatable."),
]

Claims = Annotated[
    list[str] | None,
    typer.Option("--claim", metavar="PATTERN", help="Only claims with this in their name; repeatable."),
]


@app.command()
def simulate(
    context: typer.Context,
    file: MaybeFile = None,
    set_: Set = None,
    replay: Replay = None,
    out: Out = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict a run in virtual time, or repeat a real one."""
    if replay is not None:
        if file is not None or set_:
            context.fail("--replay has a scenario of its own: leave out FILE and --set")
        _replay(replay, out, json_, quiet)
    elif file is None:
        context.fail("missing argument 'FILE'")
    else:
        _one_run(lockstep.simulate, "predicting", lockstep.load(file, set_ or []), out, json_, quiet)


def _replay(folder: Path, out: Path | None, json_: bool, quiet: bool) -> None:
    """Repeat a real run; what comes of it is written and shown even if it is something else."""
    from lockstep import replaying

    if out is not None and out.resolve() == folder.resolve():
        raise ScenarioError("that is the real run's folder; give another one", key="--out")
    run = replaying.load(folder)
    repeat = partial(replaying.replay, run)
    result = _one_run(lambda _, progress: repeat(progress), "replaying", run.scenario, out, json_, quiet)
    replaying.check(run, result)
    if not json_:
        print(replaying.agreed(result))


@app.command()
def run(
    file: File,
    set_: Set = None,
    testbed: Testbed = False,
    out: Out = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a run with real processes on this machine."""
    engine = partial(lockstep.run, testbed=testbed)
    _one_run(engine, "measuring", _load(file, set_ or [], testbed), out, json_, quiet)


def _load(file: str, overrides: list[str], testbed: bool) -> Scenario:
    return scenario_files.load(file, overrides, partial(lockstep.check, testbed=testbed))


def _one_run(
    engine: Callable[..., Result],
    doing: str,
    scenario: Scenario,
    out: Path | None,
    json_: bool,
    quiet: bool,
) -> Result:
    _check_out(out)
    try:
        with terminal.progress(f"{doing} {scenario.name}", quiet or json_) as progress:
            result = engine(scenario, progress)
    except (RuntimeError, KeyboardInterrupt) as error:
        _keep(scenario, getattr(error, "records", None), out)
        raise
    if out is not None:
        result.save(out)
    if json_:
        print(result.to_json())
    else:
        terminal.show(result, out)
        if scenario.sweep:
            print("note: this was the scenario itself; no command runs its sweep yet", file=sys.stderr)
    return result


@app.command()
def validate(
    file: MaybeFile = None,
    set_: Set = None,
    strategy: Names = None,
    testbed: Testbed = False,
    out: Out = None,
    json_: Json = False,
    quiet: Quiet = False,
    suite: Suite = False,
    limit: Limit = None,
    profile: Profile = None,
    measured: Measured = None,
    point: OnePoint = None,
) -> None:
    """Predict and measure, side by side.

    The prediction is for the network that the real run has: this machine's loopback, measured first, or with
    --testbed the scenario's own. With --suite: a grid of scenarios instead of a FILE (docs/accuracy.md).
    """
    if suite:
        from lockstep.truth.command import validate_suite

        for key, useless in (("FILE", file), ("--set", set_), ("--strategy", strategy)):
            if useless:
                raise ScenarioError("means nothing to --suite; leave it out", key=key)
        validate_suite(testbed, limit, profile, measured, point, out, json_, quiet, _check_out)
        return
    of_the_suite: dict[str, Any] = {"limit": limit, "profile": profile, "measured": measured, "point": point}
    for option, given in of_the_suite.items():
        if given is not None:
            raise ScenarioError("is for the suite; say --suite too", key=f"--{option}")
    if file is None:
        raise ScenarioError("give a scenario file, or --suite", key="FILE")
    _validate_one(file, set_, strategy, testbed, out, json_, quiet)


def _validate_one(
    file: str,
    set_: list[str] | None,
    strategy: list[str] | None,
    testbed: bool,
    out: Path | None,
    json_: bool,
    quiet: bool,
) -> None:
    overrides, names = set_ or [], dict.fromkeys(strategy or [])
    loaded = [_load(file, [*overrides, f"strategy.name={name}"], testbed) for name in names]
    points = [_only_its_own(point) for point in loaded] or [_load(file, overrides, testbed)]
    _check_out(out)
    from analysis.plots import predicted_and_measured
    from lockstep import validation

    there, which = validation.on_testbed, validation.described(points[0].cluster)
    if not testbed:
        with terminal.progress("measuring the loopback", quiet or json_):
            loopback = validation.measure_loopback(max(validation.parameters(point) for point in points))
        there = partial(validation.on_loopback, loopback=loopback)
        which = f"this machine's loopback, measured just now: {loopback}"
    if not json_:
        print(f"Predicting for {which}.")
    pairs: list[tuple[Result, Result]] = []
    try:
        for point in points:
            name = point.strategy.name
            with terminal.progress(f"predicting {name}", quiet or json_) as progress:
                predicted = lockstep.simulate(there(point), progress)
            if out is not None:
                predicted.save(out / name / "predicted")
            with terminal.progress(f"measuring {name}", quiet or json_) as progress:
                pairs.append((predicted, lockstep.run(point, progress, testbed=testbed)))
            if out is not None:
                pairs[-1][1].save(out / name / "measured")
    except (RuntimeError, KeyboardInterrupt) as error:
        _keep(point, getattr(error, "records", None), out and out / name / "measured")
        raise
    finally:
        comparisons = [validation.compare(*pair) for pair in pairs]
        if out is not None and pairs:
            predicted_and_measured(pairs, out / "validation")
            text = json.dumps({"points": comparisons}, allow_nan=False)
            (out / "validation.json").write_text(text + "\n", encoding="utf-8")
    if json_:
        print(json.dumps(comparisons[0] if not strategy else {"points": comparisons}, allow_nan=False))
    else:
        terminal.show_comparison(comparisons)
        if out is not None:
            print(
                f"Written to {out}: validation.png, validation.svg, validation.json, and each run's records."
            )


@app.command()
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


@app.command()
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
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure this machine.

    Writes a profile, which scenarios take over: cluster.profile.
    """
    from lockstep.calibration import calibrate, save, table

    loaded = [lockstep.load(file, set_ or []) for file in files or ["quickstart"]]
    _check_out(out.parent)
    save.check(out)
    with terminal.progress("calibrating", quiet or json_) as progress:
        found = calibrate(loaded, only or (), progress, testbed=testbed, hosts=hosts)
    profile = save.over(out, found) if only else found.profile
    written = save.save(found, profile, out)
    if json_:
        print(json.dumps(profile, allow_nan=False))
    else:
        table.show(profile, written)


@app.command()
def claims(claim: Claims = None, out: Out = None, json_: Json = False, quiet: Quiet = False) -> None:
    """Try what was published about strategies, in virtual time.

    A claim that does not hold is a finding, not a failure: the exit status is 0.
    """
    from lockstep.literature import chosen
    from lockstep.literature.trial import judge

    these = chosen(claim or [])
    _check_out(out)
    with terminal.progress(f"trying {len(these)} claims", quiet or json_) as progress:
        found = judge(these, progress, out)
    if json_:
        print(json.dumps(found, allow_nan=False))
    else:
        terminal.show_claims(found, out)


def _only_its_own(scenario: Scenario) -> Scenario:
    """Without the parameters that its strategy does not have: they are of the one that it stands in for."""
    strategy = scenario.strategy
    own = STRATEGIES[strategy.name].parameters
    kept = {key: value for key, value in strategy.parameters.items() if key in own}
    changed = type(strategy).model_validate({"name": strategy.name, **kept})
    return scenario.model_copy(update={"strategy": changed})


@app.command()
def scenarios(json_: Json = False) -> None:
    """List the scenarios that ship with the product."""
    shipped = scenario_files.shipped()
    rows = {name: terminal.first_comment(path) for name, path in shipped.items()}
    _list(rows, json_)


@app.command()
def profiles(json_: Json = False) -> None:
    """List the profiles that ship with the product."""
    shipped = scenario_files.profiles()
    _list({name: terminal.first_comment(path) for name, path in shipped.items()}, json_)


@app.command()
def strategies(json_: Json = False) -> None:
    """List the strategies and their parameters with the defaults.

    --json lists all parameters of each; otherwise those that many share come once, at the end.
    """
    parameters = {
        name: {key: p.default for key, p in strategy.parameters.items()}
        for name, strategy in STRATEGIES.items()
    }
    if json_:
        print(json.dumps(parameters))
    else:
        terminal.show_strategies()


def _list(rows: dict[str, str], json_: bool) -> None:
    if json_:
        print(json.dumps(rows))
    else:
        terminal.two_columns(rows)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a scenario file.

    Editors complete and check scenario files with it.
    """
    from lockstep.schema import json_schema

    print(json.dumps(json_schema(), indent=2))


def _check_out(out: Path | None) -> None:
    """Refuse an --out that cannot be written, before anything is computed; leaves nothing behind."""
    if out is None:
        return
    try:
        with TemporaryFile(dir=next(path for path in (out, *out.absolute().parents) if path.exists())):
            pass
    except OSError as error:
        reason = f"cannot write to {str(out)!r}: {error.strerror}; give another folder"
        raise ScenarioError(reason, key="--out") from None


def _keep(scenario: Scenario, records: Any, out: Path | None) -> None:
    """Write what a run that did not end well has measured."""
    if out is None or records is None:
        return
    save_records(scenario, records, out)
    print(f"What was measured until then: {out / 'records.parquet'}", file=sys.stderr)


def main() -> None:
    """The command `lockstep`."""
    try:
        status = app(sys.argv[1:] or ["--help"], prog_name="lockstep", standalone_mode=False)
        if status == 130:  # typer's word for Ctrl-C
            raise KeyboardInterrupt
    except ScenarioError as error:
        status = _complain(str(error), 2)
    except typer.Exit as leave:
        status = leave.exit_code
    except (typer.Abort, KeyboardInterrupt):
        status = _complain("interrupted", 130)
    except OSError as error:  # such as a full disk
        status = _complain(f"{error.filename or 'output'}: {error.strerror or error}", 3)
    except RuntimeError as error:
        if type(error).__name__ not in ("RunFailed", "SimulationError", "Misfit", "ReplayDiffers"):
            raise
        print(getattr(error, "details", ""), end="", file=sys.stderr)
        status = _complain(str(error), 3)
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's usage errors have it
            raise
        status = _complain(_usage(error), 2)
    sys.exit(status or 0)


def _usage(error: Any) -> str:
    """One line of a usage error of click's, and where to read more."""
    context = getattr(error, "ctx", None)
    said = " ".join(error.format_message().split()).rstrip(".")
    return f"{said[0].lower()}{said[1:]} (see '{context.command_path if context else 'lockstep'} --help')"


def _complain(message: str, status: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status
