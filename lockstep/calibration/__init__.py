"""Measures what a scenario's cluster takes for granted: how fast this machine and its network really are."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from lockstep.attempts import unstolen
from lockstep.calibration import apply, codecs, compute, cores, layers, network, process
from lockstep.calibration.estimates import Estimates
from lockstep.calibration.profile_file import document
from lockstep.executor import devices
from lockstep.executor.fork_server import start_fork_server
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.problem import Note
from lockstep.scenarios.profile import called
from lockstep.scenarios.section import nearest
from lockstep.scenarios.workload import Trained, UserTask
from lockstep.workloads import modules

PARTS = ("compute", "apply", "codecs", "cores", "network")

Progress = Callable[[float], None]
T = TypeVar("T")


class Calibration(NamedTuple):
    """A profile as plain values, and the samples of compute times (s), by workload."""

    profile: dict[str, Any]
    samples: dict[str, list[float]]


def calibrate(
    scenarios: Sequence[Scenario],
    parts: Sequence[str] = (),
    progress: Progress | None = None,
    *,
    testbed: bool = False,
    hosts: str = "",
) -> Calibration:
    """Measure this machine: `parts` of PARTS, all that are there without any.

    Gradients are those of the scenarios' workloads, equal ones once; cores are measured with the first one's.
    The network is the loopback, or a `testbed` with the first scenario's cables, or that between `hosts`.
    Raises ScenarioError for what cannot be measured, RunFailed if a process that measures dies.
    """
    for part in parts:
        if part not in PARTS:
            raise ScenarioError(f"no such part: {part!r}{nearest(part, PARTS)}", key="--only")
    learning = {called(compute.key(s.workload)): s for s in scenarios if s.workload.learns}
    workloads = {name: each.workload for name, each in learning.items()}
    parts = [part for part in PARTS if part in (parts or PARTS)]
    named = tuple(host.strip() for host in hosts.split(",")) if hosts else ()
    if "network" in parts:
        network.check(testbed, named)
    if "compute" in parts:
        for scenario in learning.values():
            devices.require(*devices.asked(scenario.cluster, of_worker=True))
    if "apply" in parts:
        devices.require(*devices.asked(scenarios[0].cluster, of_worker=False))
    rate = scenarios[0].cluster.network.bandwidth or network.RATE
    steps = [*(f"compute {name}" for name in workloads if "compute" in parts), *parts]
    found: list[Estimates] = []
    timed: list[dict[str, Any]] = []
    samples: dict[str, list[float]] = {}
    disturbed: list[str] = []

    def quiet(step: str, measure: Callable[[], T]) -> T:
        return unstolen(measure, stayed=partial(disturbed.append, step))

    def done(step: str, fraction: float = 1.0) -> None:
        if progress is not None:
            progress((steps.index(step) + fraction) / len(steps))

    if not workloads and {"compute", "cores"} & set(parts):
        compute.sample(scenarios[0].workload)  # which says why there is nothing to measure
    imported = {name for each in workloads.values() for name in modules(each, in_layers=True)}
    start_fork_server([*process.PRELOADED, *sorted(imported)])
    if "compute" in parts:
        for name, scenario in learning.items():
            entry, estimates, samples[name] = quiet(
                f"compute {name}", partial(_compute, name, scenario, not timed)
            )
            timed.append(entry)
            found.append(estimates)
            done(f"compute {name}")
    if "apply" in parts:
        found.append(quiet("apply", partial(apply.measure, wanted=scenarios[0].cluster.servers.device)))
        done("apply")
    if "codecs" in parts:
        found.append(quiet("codecs", codecs.measure))
        done("codecs")
    if "cores" in parts:
        found.append(quiet("cores", partial(cores.measure, next(iter(workloads.values())))))
        done("cores")
    if "network" in parts:
        found.append(network.measure(testbed, named, lambda part: done("network", part), rate, disturbed))
    where = ("hosts" if hosts else "testbed" if testbed else "loopback") if "network" in parts else None
    of_cables = rate if where == "testbed" else None
    if disturbed:
        found.append(Estimates({}, {}, {"disturbed": disturbed}))
    return Calibration(document(_together(found), timed, where, of_cables), samples)


def _compute(name: str, scenario: Scenario, first: bool) -> tuple[dict[str, Any], Estimates, list[float]]:
    """The entry of a workload in a profile's `compute`, the evidence, and the sample; of the `first` one what
    updates take, too."""
    workload, wanted = scenario.workload, scenario.cluster.device
    times, device, reading, wrong = compute.sample(workload, wanted=wanted)
    if wrong:
        warnings.warn(f"{name}: {wrong}", Note, stacklevel=2)
    fits, evidence = compute.judged(times)
    read, apart = None, dict[str, Any]()
    if reading:
        (read, *_), seen = compute.judged(reading)
        evidence |= {"loading": seen}
        apart = {f"compute.{name}.loading.{key}": ends for key, ends in (read.intervals or {}).items()}
    plan = Plan.of(scenario)
    optimizer = plan.strategy.steps_by(scenario.strategy.parameters)
    step = apply.step(optimizer, plan.sizes.parameters, wanted)
    evidence |= step.evidence
    intervals = {f"compute.{name}.{key}": ends for key, ends in (fits[0].intervals or {}).items()}
    intervals |= apart
    backward = None
    if isinstance(workload, Trained):
        split = layers.split(workload, wanted)
        backward = split.pop("backward")
        low, high = split.pop("interval")
        intervals[f"compute.{name}.backward"] = (low, high)
        evidence |= split
    content = {"content": workload.content} if isinstance(workload, UserTask) else {}
    timed = compute.compute_of(fits[0], backward, read)
    entry = {"workload": compute.key(workload), **content, "compute": timed}
    evidence = {"compute": {name: {"device": device, **evidence}}}
    if not first:
        return entry, Estimates({}, intervals, evidence), times
    return entry, Estimates(step.settings, {**intervals, **step.intervals}, evidence), times


def _together(found: Sequence[Estimates]) -> Estimates:
    settings: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    evidence: dict[str, Any] = {}
    for each in found:
        settings |= each.settings
        intervals |= each.intervals
        for key, value in each.evidence.items():
            evidence[key] = evidence.get(key, {}) | value if isinstance(value, dict) else value
    return Estimates(settings, intervals, evidence)
