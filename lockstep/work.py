"""How much work a command has before it, and whether that is too much to begin without asking.

An estimate is good to a factor of about three, which is enough to tell minutes from days. Short runs are
judged by the messages that they can have at most; the beginning of any other is simulated for half a second
(simulator/pilot.py), so that nothing here knows the strategies. What gradients take that are really computed
follows from their FLOPs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from random import Random
from typing import Any, TypeVar

from lockstep.analysis.words import size
from lockstep.feasible import changing
from lockstep.job.plan import Plan
from lockstep.scenarios import Compute, Network, Scenario
from lockstep.workloads import sizes
from lockstep.workloads.memory import bytes_of, free_bytes, require

T = TypeVar("T")
LONGEST_S = 3600.0
MEMORY = 0.8
"""Below so many seconds, and this share of the free memory, no command asks."""

_LITTLE = 32e6  # bytes: for as much as is loaded already nobody looks how much is free
_LOOK_S = 0.5  # of the beginning of a run that may have more messages than these
_SMALL = 200_000
_LOOKS = 6  # runs at most whose beginning is looked at, however many there are
# Measured on one core of an AMD EPYC; tests/lockstep/test_work.py holds them against runs.
_MESSAGE_S = 15e-6  # of simulation, with all that comes with it
_RECORD_S, _RECORD_BYTES = 2e-6, 36  # of a run's metrics, for each of its records
_PASSES = 5  # of a micro-batch through a piece of the model, with the two messages between them
_COPIES = 4  # of all records, while they are put in order: 2.3 to 3.0 (benchmarks/memory.py)
_FLOP_PER_S = 30e9  # from 25 in a small cnn to 60; the rest is for each gradient, and each of its elements
_GRADIENT_S, _ELEMENT_S = 3e-4, 1e-8
_START_S, _PROCESS_S = 5.0, 0.1  # of a real run


@dataclass(frozen=True)
class Work:
    """About how long something takes, s, and how many bytes of memory."""

    seconds: float
    nbytes: float

    def __add__(self, after: "Work") -> "Work":
        """One after the other."""
        return Work(self.seconds + after.seconds, max(self.nbytes, after.nbytes))

    def times(self, count: float, at_once: int = 1) -> "Work":
        """The same so often, so many of them at the same time."""
        at_once = max(1, min(at_once, ceil(count)))
        return Work(self.seconds * count / at_once, self.nbytes * at_once)

    def within(self, timeout: float | None) -> "Work":
        """The same, given up after so many seconds (None: never)."""
        return self if timeout is None else Work(min(self.seconds, timeout), self.nbytes)

    @property
    def too_much(self) -> str | None:
        """What it would take, in words, if that is too much to begin without asking."""
        if self.nbytes > _LITTLE and self.nbytes > MEMORY * (free := free_bytes()):
            return f"this takes about {size(self.nbytes)} of memory, and {size(free)} is free"
        if self.seconds > LONGEST_S:
            return f"this takes about {duration(self.seconds)}, judging by how it begins"
        return None


def duration(seconds: float) -> str:
    """A long time in words."""
    for unit, length in (("year", 365.25 * 86400), ("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 1.5 * length:
            count = seconds / length
            return f"{count:,.0f} {unit}s" if count < 1e6 else "millions of years"
    return f"{seconds:.0f} seconds"


def simulating(scenario: Scenario, why: bool = False, what_if: bool = False) -> Work:
    """The work of `simulate`; with `why` it tries each resource too, by sizes only.

    With `what_if` it makes the whole run as often as there are changes: what it learns may depend on them.
    """
    if what_if:
        from lockstep.ideal import CHANGES

        return simulating(scenario, why) + simulating(scenario).times(1 + len(CHANGES))
    if why:
        from lockstep.resources import RESOURCES

        return simulating(scenario) + simulating(scenario.sizes_only).times(1 + len(RESOURCES))
    plan = Plan.of(scenario)
    messages, steps = _at_most(plan)
    seconds, records = _MESSAGE_S * messages, messages + 2.0 * steps
    if messages > _SMALL or any(changing(scenario)):
        from lockstep.simulator.pilot import pilot

        seen = pilot(scenario, _LOOK_S)
        steps, seconds = seen.steps / seen.done, seen.took_s / seen.done
        records = seen.nbytes / seen.done / _RECORD_BYTES
    seconds, nbytes = seconds + _RECORD_S * records, _COPIES * _RECORD_BYTES * records
    if not scenario.workload.learns:
        return Work(seconds, nbytes)
    each = _GRADIENT_S + (plan.sizes.flops or 0.0) / _FLOP_PER_S + _ELEMENT_S * plan.sizes.parameters
    return Work(seconds + steps * each, nbytes + learning_bytes(plan))


def require_room(plan: Plan) -> None:
    """Raise ScenarioError for a simulation whose model and data memory has no room for."""
    if plan.scenario.workload.learns:
        instead = "take a smaller model or batch_size, fewer workers, or learning: false"
        require(learning_bytes(plan), "what is learned", "workload", instead)


def learning_bytes(plan: Plan) -> float:
    """What the data set, the model and everybody's vectors take where the real gradients are simulated."""
    its = plan.sizes
    snapshots = max(64e6, 8.0 * its.nbytes)
    return bytes_of(plan.scenario.workload, its) + 2.0 * len(plan.workers) * its.nbytes + snapshots


def running(scenario: Scenario, testbed: bool = False) -> Work:
    """The work of `run`: emulated gradients take their time; messages hardly any, but on the testbed.

    The memory is that of the records: `run` itself refuses more processes than there is room for.
    """
    from lockstep.simulator.pilot import pilot

    cluster, its = scenario.cluster, sizes(scenario.workload)
    loopback = Network.model_construct(topology=cluster.network.topology.unlimited())
    changes: dict[str, Any] = {} if testbed else {"network": loopback}
    if not isinstance(cluster.compute, Compute):
        value = f"{_GRADIENT_S + (its.flops or 0.0) / _FLOP_PER_S!r} s"
        changes["compute"] = Compute.model_validate({"time": {"distribution": "constant", "value": value}})
    there = scenario.model_copy(update={"cluster": cluster.model_copy(update=changes)})
    seen = pilot(there, _LOOK_S)
    processes = cluster.workers + cluster.servers.hosts
    seconds = _START_S + _PROCESS_S * processes + seen.virtual_s / seen.done
    return Work(seconds, _COPIES * seen.nbytes / seen.done)


def validating(scenario: Scenario, testbed: bool = False) -> Work:
    """The work of `validate`: a simulation, where the compute times are known, and a run."""
    known = isinstance(scenario.cluster.compute, Compute)
    return (simulating(scenario) if known else Work(0.0, 0.0)) + running(scenario, testbed)


def of_many(
    items: Sequence[T], work: Callable[[T], Work], at_once: int = 1, count: int | None = None
) -> Work:
    """The work of all of these, or of `count` such, so many at a time; of many only some are looked at."""
    if not items:
        return Work(0.0, 0.0)
    looked = Random(0).sample(items, min(_LOOKS, len(items)))  # not every n-th: a grid repeats itself
    works = [work(item) for item in looked]
    seconds = sum(each.seconds for each in works) / len(works)
    return Work(seconds, max(each.nbytes for each in works)).times(count or len(items), at_once)


def _at_most(plan: Plan) -> tuple[float, float]:
    """The most messages that a run may have, were each gradient sent to everyone, and its mini-batches.

    A pass takes as long to simulate as a message.
    """
    scenario, cluster, limits = plan.scenario, plan.scenario.cluster, plan.quota
    steps = min(
        inf if limits.each is None else float(limits.each) * cluster.workers,
        inf if limits.together is None else float(limits.together) * scenario.split.devices,
    )
    passes = _PASSES * plan.micro_batches * plan.chunks if plan.stages else 0
    values = scenario.strategy.parameters
    parts = max(values.get(key) or 1 for key in ("chunks", "buckets"))
    if plan.units is not None:  # gathered twice, and reduced
        parts = ceil(1.5 * plan.units * plan.micro_batches)
    everyone = cluster.workers + cluster.servers.processes
    return steps * (2 * parts * everyone + passes), steps
