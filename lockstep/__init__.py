"""Lockstep: predict and measure data-parallel training, with one strategy on two clocks.

>>> import lockstep
>>> scenario = lockstep.load("quickstart", ["cluster.workers=8", "cluster.stragglers=[]"])
>>> result = lockstep.simulate(scenario)          # in virtual time
>>> result = lockstep.run(scenario)               # with real processes       # doctest: +SKIP
>>> result.metrics["throughput"], result.records  # metrics, and the table behind them  # doctest: +SKIP
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import scenarios
from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:  # libraries, and what needs them, load when they are used: `lockstep --help` does not
    import pandas

    from lockstep.analysis.gains import Gain
    from lockstep.analysis.result import Result
    from lockstep.analysis.what_if import WhatIf
    from lockstep.comparison import Comparison, Source
    from lockstep.fitting import Fit
    from lockstep.fitting.keys import Ends
    from lockstep.job.plan import Plan
    from lockstep.recommendation import Recommendation, Target
    from lockstep.scenarios import Scenario
    from lockstep.workloads.cutting import By
    from lockstep.workloads.task import Task

__all__ = [
    "Result",
    "Scenario",
    "ScenarioError",
    "Task",
    "chaos",
    "claims",
    "compare",
    "fit",
    "load",
    "model",
    "recommend",
    "records",
    "replay",
    "run",
    "scenario",
    "simulate",
    "sweep",
    "validate",
    "verify",
    "what_if",
    "why",
]

Progress = Callable[[float], None]


def __getattr__(name: str) -> Any:
    if name == "Result":
        from lockstep.analysis.result import Result

        return Result
    if name == "Scenario":
        return scenarios.Scenario
    if name == "Task":
        from lockstep.workloads.task import Task

        return Task
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load(source: str | Path, overrides: Sequence[str] = (), *, trust: bool = False) -> "Scenario":
    """Read a scenario file, or a shipped scenario by name (`lockstep scenarios` lists them).

    `overrides`: "key=value" with a dotted key and a YAML value, such as "cluster.network.bandwidth=1 Gbit/s";
    they win over the file, a later one over an earlier. Presets and profiles are taken over, files named in
    it become absolute paths. `trust`: code that it names runs wherever it lies, not only beside the file and
    in the current folder (docs/security.md). Raises ScenarioError: what is wrong, in which file, line and
    key, and what would be valid.
    """
    from lockstep.scenarios.code import trusting

    with trusting(trust):
        return scenarios.load(source, overrides, partial(check, fits=False))


def scenario(
    task: "Callable[..., Task]",
    options: Mapping[str, Any] | None = None,
    *,
    cluster: Mapping[str, Any] | str,
    strategy: Mapping[str, Any] | str,
    stop: Mapping[str, Any],
    batch_size: int = 32,
    seed: int = 0,
    **more: Any,
) -> "Scenario":
    """Make a scenario in which `task(**options)` is learned (docs/your-model.md), without a file.

    `cluster`, `strategy` and `stop` are as in a file, such as cluster={"workers": 4, "compute": "measured"};
    `more`: its other sections and keys of `workload`, such as parallelism={"pipeline": 2}, precision="bf16".
    Real processes import the function from its file: one of a notebook can be simulated only.
    Raises ScenarioError as `load` does, with the key.
    """
    from lockstep.scenarios.loading import made
    from lockstep.scenarios.workload import UserTask
    from lockstep.workloads.users import code_of

    if "workload" in more:
        raise ScenarioError("is made of the task; give its keys themselves: batch_size=4", key="workload")
    code = code_of(task, dict(options or {}))
    workload = {"task": code.task, "options": dict(options or {}), "batch_size": batch_size}
    workload |= {"root": code.root, "content": code.content}
    workload |= {key: more.pop(key) for key in [*more] if key in UserTask.model_fields}
    sections = {"cluster": cluster, "strategy": strategy, "stop": stop, "seed": seed}
    document = {"name": task.__name__, **sections, "workload": workload, **more}
    return made(document, partial(check, fits=False))


def check(scenario: "Scenario", testbed: bool = False, fits: bool = True) -> "Plan":
    """The job of a scenario that can be run.

    Raises ScenarioError for what only the strategies, the workloads or the testbed can know to be wrong;
    if `fits`, also for what does not fit into the memory of its devices.
    """
    from lockstep.job.plan import Plan

    plan = Plan.of(scenario)
    if scenario.cluster.network.varying:
        from lockstep.simulator.topology import topology
        from lockstep.simulator.traffic import varying_links

        varying_links(topology(scenario.cluster), scenario.cluster.network.varying)
    from lockstep import feasible, room
    from lockstep.workloads import try_metrics

    try_metrics(scenario.workload)
    feasible.check(plan)
    if fits:
        room.require(plan)
    if testbed:
        from lockstep.executor import testbed as bed

        bed.check(scenario)
        bed.require()
    return plan


def simulate(scenario: "Scenario", progress: Progress | None = None) -> "Result":
    """Predict a run of the scenario in virtual time.

    A pure function of the scenario, its seed included: the same records on any machine. Its sweep is not
    looked at. Raises ScenarioError for a scenario that cannot be run, such as one with a strategy or a model
    that there is not, or `compute: measured`; SimulationError if the strategy fails, or its nodes wait
    for each other for ever.

    It does not ask before long runs, as the command does. ScenarioError is also raised where
    memory has no room for the model, the data set, or the records of all that happens.
    """
    from lockstep.simulating import simulate

    return simulate(check(scenario), progress)


def why(scenario: "Scenario", progress: Progress | None = None) -> "list[Gain]":
    """Try what limits a run: which resource, made a tenth faster, saves the most time (docs/metrics.md).

    Each is tried by a simulation of its own, by sizes only and with the same seed. Of each `Gain`, the most
    first: `kind`, `who` (the resource) and `gain`, a share of the time. No gains if nothing was applied.
    Raises what `simulate` raises.
    """
    from lockstep.resources import why

    return why(scenario, progress)


def what_if(scenario: "Scenario", progress: Progress | None = None) -> "WhatIf":
    """Try the way from now to the ideal: twice the bandwidth, no stragglers, no faults, twice the servers.

    Each besides those before it, as far as it means something there; at last nothing takes time but
    computing, and all gradients take as long. Of what is returned, `.steps` has for each `change` the
    `seconds` to the target (None: not reached) or, if the run reaches none or nothing is learned, for a
    million samples, by sizes only; `plots.what_if` draws it. Raises what `simulate` raises.
    """
    from lockstep.ideal import what_if

    return what_if(scenario, progress)


def run(
    scenario: "Scenario",
    progress: Progress | None = None,
    *,
    testbed: bool = False,
    out: str | Path | None = None,
    deadline: float | None = None,
    waiting: Callable[[str], None] | None = None,
    attempts: int | None = None,
    overruns_expected: bool = False,
    resume: bool = False,
) -> "Result":
    """Measure a run of the scenario with real processes on this machine, one for each node.

    They talk inside this machine or, with `testbed`, over the scenario's own network (Linux, as root:
    docs/testbed.md). Times are of the monotonic clock. In a script, call it below
    `if __name__ == "__main__":`, since the processes import the script.

    `out`: a folder for the result, as `Result.save` writes it; while the run goes on, and if it does not end
    well, its records are in the folder's `incomplete`. `deadline`: seconds for which a process may give no
    sign, or not get on; None: the larger of 20 s and ten of the longest gradients (docs/failures.md).
    `waiting` is told now and then for whom others wait, or "", and what is measured again. A run that was
    disturbed, or whose emulated gradients took too long, is measured again, `attempts` times in all
    (docs/failures.md). Without `attempts` that is 3, or 1 for `compute: measured` without `testbed`; where it
    learns without `testbed`, such gradients alone are no reason. With `resume` it is 1. With
    `overruns_expected` such gradients are no disturbance. `resume`: go on with the run of this scenario in
    `out`, which was killed, from its last checkpoint (docs/faults.md).

    Raises ScenarioError for a scenario that cannot be run here, RunFailed if a process ends badly or holds
    the others up, and RunInterrupted, a KeyboardInterrupt, on Ctrl-C; both have the `records` so far.
    """
    from dataclasses import replace

    from lockstep.attempts import ATTEMPTS, undisturbed
    from lockstep.executor import fork_server

    plan = check(scenario, testbed)
    with fork_server.begun(plan, testbed):
        from lockstep.executor.launch import execute

    folder = None if out is None else Path(out)
    options: Any = {"testbed": testbed, "out": folder, "deadline_s": deadline, "waiting": waiting}
    options["resume"] = resume

    overruns_too = attempts is not None or testbed or not scenario.workload.learns
    if attempts is None or resume:
        trains = scenario.cluster.compute == "measured" and not testbed
        attempts = 1 if trains or resume else ATTEMPTS

    def measure() -> "Result":
        result = execute(plan, progress, **options)
        if not overruns_expected:
            return result
        return replace(result, warnings=[*result.warnings, *result.overruns], overruns=())

    def keep(result: "Result") -> None:
        if folder is not None:
            result.save(folder)

    result = undisturbed(measure, attempts, waiting, overruns_too, keep)
    keep(result)
    return result


def records(folder: str | Path) -> "pandas.DataFrame | None":
    """The records in a run's folder: of the run, or what an incomplete one has left; None if there are none.

    Raises ScenarioError if there is neither.
    """
    from lockstep.analysis import incomplete, saved
    from lockstep.analysis.folders import INCOMPLETE

    folder = Path(folder)
    for place in (folder, *sorted(folder.glob(f"{INCOMPLETE}*"))):
        if saved.is_run(place):
            return saved.load(place).records
        if incomplete.is_one(place):
            return incomplete.records(place)
    raise ScenarioError("there is no run in it", file=str(folder))


def replay(folder: str | Path, progress: Progress | None = None) -> "Result":
    """Repeat in the simulator the real run whose `--out` (or `Result.save`) the folder is (docs/replay.md).

    Raises ScenarioError if that run cannot be repeated, SimulationError if its log does not fit, and
    ReplayDiffers, which has the `result`, if it does but something else came of it.
    """
    from lockstep import replaying

    run = replaying.load(folder)
    result = replaying.replay(run, progress)
    replaying.check(run, result)
    return result


def validate(
    scenario: "Scenario", progress: Progress | None = None, *, testbed: bool = False, attempts: int = 3
) -> "tuple[Result, Result]":
    """(predicted, measured): predict a run on the network that the real one has, and measure it.

    That is this machine's own, measured first (some seconds), or with `testbed` the scenario's
    network; `predicted.scenario` has it. `progress` is told of the real run alone, `attempts` are as in
    `run`. Raises what `simulate` and `run` raise.
    """
    from lockstep.loopback import measure_loopback
    from lockstep.validation import on_loopback, on_testbed, parameters

    check(scenario, testbed)
    there = on_testbed(scenario) if testbed else on_loopback(scenario, measure_loopback(parameters(scenario)))
    return simulate(there), run(scenario, progress, testbed=testbed, attempts=attempts)


def model(
    source: str | Path,
    overrides: Sequence[str] = (),
    *,
    stages: int | None = None,
    by: "By | None" = None,
) -> dict[str, Any]:
    """A model's layers: what `lockstep model --json` prints (docs/models.md).

    `source`: a scenario's file or name, a workload that ships, or a model's name, such as "resnet50", for the
    images of digits (mlp, cnn) or of cifar10. `overrides` as in `load`, such as "workload.batch_size=64".
    `stages`: where it is cut into so many, so that the largest stage has as little as can be of what `by`
    says ("flops", if None, "parameters", "time" or "memory"). None: where the scenario's `parallelism` cuts
    it.
    Raises ScenarioError for a name that there is not, a model that does not fit, more stages than layers, and
    `by` without `stages`.
    """
    from lockstep.model_table import table

    return table(source, overrides, stages, by)


def recommend(
    scenario: "Scenario",
    target: "Target | None" = None,
    *,
    budget: int | None = None,
    at_most: str | None = None,
    strategies: Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress | None = None,
) -> "Recommendation":
    """Search the strategies for the scenario's cluster and workload by simulation (docs/recommend.md).

    `target`: "time" (to the target in `stop`), "throughput", "machine-hours" or "cost"; None: time if the
    scenario has a target, throughput otherwise. `budget`: at most so many candidates that the search
    tries (100; 200 if they learn); the ranking (40 simulations at most) and the what-ifs come on top.
    `at_most`: what it may cost, such as "500 USD" (docs/cost.md).
    `strategies`: the names of those to try, all that the cluster can run if empty. `jobs`: processes, one a
    core if None; nothing depends on how many.
    Of what is returned, `.best` is a scenario, `.ranking` the candidates, `.table` all runs.
    Raises ScenarioError for a target that the scenario cannot have, a strategy that is none, and if no
    strategy is left.
    """
    from lockstep.recommendation import Recommendation

    return Recommendation(scenario, target, strategies, jobs, at_most).run(budget, progress)


def sweep(
    source: "str | Path | Scenario",
    progress: Progress | None = None,
    *,
    out: str | Path | None = None,
    engine: str = "simulator",
    testbed: bool = False,
    jobs: int | None = None,
    backend: str = "joblib",
    scheduler: str | None = None,
    records_of: Collection[int] = (),
) -> "pandas.DataFrame":
    """Run the sweep of a file or a scenario: a table, a row a run (docs/sweep.md).

    Its columns are `point` (of the sweep, from 0), `run` (the run's name), `status` ("ok" or "failed"),
    `error` (one line, or None), and those of `analysis.table.row`. A run that fails is such a row, not an
    exception.

    `out`: a folder for `results.parquet`, which is this table, and for runs that have ended: those that are
    there are not made again. With it the records of the points in `records_of` are kept in `runs/RUN/`.
    `engine`: "simulator" or "executor", whose real runs are made one at a time, with `testbed` on the
    scenario's network. `jobs`: processes, one a core if None. `backend`: "joblib" (this machine), "dask" or
    "ray", whose cluster is at `scheduler`. The table depends on neither jobs nor backend.
    Raises ScenarioError for a sweep that is not valid, before anything is run, and for options that do not go
    together; KeyboardInterrupt loses only the runs under way.
    """
    from lockstep.sweeping.backends import choose
    from lockstep.sweeping.points import plan
    from lockstep.sweeping.sweep import sweep

    planned = plan(source, engine=engine, testbed=testbed)
    workers = choose(backend, jobs, scheduler, planned)
    folder = None if out is None else Path(out)
    return sweep(planned, workers, out=folder, records_of=records_of, progress=progress).table


def compare(*sources: "Source", progress: Progress | None = None) -> "Comparison":
    """Say what differs between the first and each of the others, and what that did (docs/compare.md).

    `sources`: folders that `--out` has made of runs, sweeps and recommendations; results, tables of `sweep`;
    scenarios, their files and names, which are simulated. A folder of `validate` alone is its predictions
    against its measurements. `progress` is told of each simulation.

    Of what is returned, `.pairs` has for each pair of points the `keys` that differ, the `metrics` (`first`,
    `second`, `change`, `relative`, and `low` to `high`, the 95% interval of the change over seeds;
    `certain`: whether these runs can tell it from chance), and `step_s`; `.table` is a data frame, `.same`
    whether nothing differs.
    Raises ScenarioError for what cannot be read, and where no run on one side has its like on the other.
    """
    from lockstep.comparison import compare

    return compare(sources, progress)


def fit(
    source: "str | Path | Scenario",
    table: "str | Path | pandas.DataFrame",
    free: "Mapping[str, Ends]",
    overrides: Sequence[str] = (),
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> "Fit":
    """Find what a few measurements leave open, so that a scenario extrapolates them (docs/fit.md).

    `table`: a CSV file or a data frame. A row is the scenario with the keys of its columns set; `throughput`
    (samples/s) or `step_s` (s of a step) is what was measured, `sd` its standard deviation, `use` "fit" or
    "predict". `free`: the keys whose values are to be found, such as "cluster.network.bandwidth", and where:
    ("1 Mbit/s", "10 Gbit/s"), or None, a hundred times more and less than the scenario says. `overrides` as
    in `load`. `jobs`: processes; None: one a core where that pays. Nothing depends on how many.

    Of what is returned, `.free` has for each key `value`, `low` and `high` (95%; None: not known) in base
    units, `.rows` is a data frame with what was measured and is predicted, `.identifiable` says whether the
    rows tell all values apart, `.flat` which not, `.scenario` is the scenario with the values.
    Raises ScenarioError for a table or a key that will not do: what, where, and what would be valid.
    """
    from lockstep.fitting import fit

    return fit(source, table, free, overrides, jobs=jobs, progress=progress)


def verify(patterns: Sequence[str] = (), progress: Progress | None = None) -> dict[str, Any]:
    """Hold the simulator against closed forms: what `lockstep verify --json` prints (docs/verify.md).

    `patterns`: parts of names of cases; all cases if empty. Raises ScenarioError for one in no name.
    """
    from lockstep.studies.verification import chosen, verify

    return verify(chosen(patterns), progress)


def claims(
    patterns: Sequence[str] = (), progress: Progress | None = None, out: Path | None = None
) -> dict[str, Any]:
    """Try published claims in virtual time: what `lockstep claims --json` prints (docs/claims.md).

    `patterns`: parts of names of claims; all claims, which take minutes, if empty. With `out`, everything
    measured is written to that folder. Raises ScenarioError for a pattern in no name.
    """
    from lockstep.studies.reproductions import chosen
    from lockstep.studies.reproductions.experiment import judge

    return judge(chosen(patterns), progress, out)


def chaos(
    scenario: "Scenario",
    *,
    simulated: int | None = None,
    mtbf_s: float = 5.0,
    for_s: float = 60.0,
    testbed: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Strike runs at random: what `lockstep chaos --json` prints (docs/chaos.md).

    `simulated`: so many runs in virtual time with faults that are drawn; None: real runs for `for_s` seconds,
    one of whose processes is killed or stopped every `mtbf_s`, on average. Of what is returned, `broken` has
    the runs that did not end well. Raises ScenarioError; RunFailed if a real run fails that nobody strikes.
    """
    from lockstep.studies.chaos import loop

    check(scenario, testbed)
    if simulated is not None:
        return loop.document(loop.simulated(scenario, simulated, seed, progress))
    return loop.document(loop.real(scenario, mtbf_s, for_s, testbed, seed, progress))
