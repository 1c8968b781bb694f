"""Whether a job fits into the memory of its devices and, if not, the smallest change with which it would."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from lockstep.analysis.words import size
from lockstep.job.memory import HighWater
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.kinds import kind_of
from lockstep.scenarios.section import divisors
from lockstep.strategies.marks import InPasses

Change = dict[str, int | bool]
"""Keys of `parallelism`, and their values."""

_MOST_UNITS = 1024
_WORDS = {
    "parameters": "parameters",
    "gradient": "gradient",
    "optimizer": "optimizer state",
    "stashed": "older versions",
    "others": "other vectors",
    "in_full": "parameters and gradients in full for a while",
    "activations": "activations",
    "buffers": "buffers",
    "servers": "servers' vectors",
}


def short(plan: Plan) -> int | None:
    """The worker whose device lacks most, as a share of what it has; None: all have enough."""
    cluster = plan.scenario.cluster
    if cluster.memory_of(0) is None:  # then nobody has a limit
        return None

    def share(worker: int) -> float:
        return _needs(plan, worker).total / (cluster.memory_of(worker) or 1.0)

    worst = max(plan.workers, key=share)
    return worst if share(worst) > 1 else None


def require(plan: Plan) -> None:
    """Raise ScenarioError if a device has not the memory that the plan takes; key: where that is given."""
    worker = short(plan)
    if worker is None:
        return
    cluster, needs = plan.scenario.cluster, _needs(plan, worker)
    parts = {_WORDS[name]: nbytes for name, nbytes in needs._asdict().items() if nbytes}
    most = sorted(parts.items(), key=lambda part: -part[1])
    split = plan.scenario.split
    stage = f"stage {plan.places[worker][0] // split.tensor} of {split.pipeline} (worker {worker})"
    problem = (
        f"{stage if split.pipeline > 1 else f'worker {worker}'} needs {size(needs.total)}, "
        f"{', '.join(f'{size(nbytes)} of it {word}' for word, nbytes in most)}; its device has "
        f"{size(cluster.memory_of(worker) or 0.0)}{_instead(plan)}"
    )
    kind = kind_of(cluster.kinds, worker)
    own = kind is not None and cluster.kinds[kind].memory is not None
    raise ScenarioError(problem, key=f"cluster.kinds[{kind}].memory" if own else "cluster.memory")


def _needs(plan: Plan, worker: int) -> HighWater:
    return plan.high_water(worker)


def smallest(plan: Plan) -> Change | None:
    """The smallest change of `parallelism` with which all have enough; None: none of them will do."""
    scenario = plan.scenario
    for change in _changes(plan):
        split = scenario.split.model_copy(update=change)
        with suppress(ScenarioError):  # such as more stages than layers
            if short(Plan.of(scenario.model_copy(update={"parallelism": split}))) is None:
                return change
    return None


def more_units(plan: Plan) -> dict[str, Any] | None:
    """Of a strategy that computes in units, the parameter that counts them, and how many are enough for all.

    Each time twice as many are tried. None: none of them will do, or the strategy has none.
    """
    scenario, marks = plan.scenario, [key for key, _, _ in plan.strategy.marks(InPasses)]
    if plan.units is None or not marks:
        return None
    (key,), units = marks, 2 * plan.units
    with suppress(ScenarioError):  # more units than layers
        while units <= _MOST_UNITS:
            given = {"name": scenario.strategy.name, **scenario.strategy.parameters, key: units}
            strategy = type(scenario.strategy).model_validate(given)
            if short(Plan.of(scenario.model_copy(update={"strategy": strategy}))) is None:
                return {key: units}
            units *= 2
    return None


def _instead(plan: Plan) -> str:
    cluster = plan.scenario.cluster
    if plan.served_on:
        host = cluster.servers.model_copy(update={"device": "cpu"})
        moved = plan.scenario.model_copy(update={"cluster": cluster.model_copy(update={"servers": host})})
        if short(Plan.of(moved)) is None:
            return ": it would fit with cluster.servers.device: cpu"
    if (units := more_units(plan)) is not None:
        return f": it would fit with {', '.join(f'strategy.{key}: {many}' for key, many in units.items())}"
    change = smallest(plan)
    if change is None:
        return (
            ". It would not fit with more stages of so many workers, recomputation or smaller micro-batches "
            "either; take more workers, or a smaller model"
        )
    said = ", ".join(f"{key}: {str(value).lower()}" for key, value in change.items())
    return f": it would fit with parallelism: {{{said}}}"


def numbers_of_stages(scenario: Scenario) -> list[int]:
    """Into how many stages the workers can be divided."""
    workers = scenario.cluster.workers // scenario.split.tensor
    return divisors(workers)


def numbers_of_parts(scenario: Scenario) -> list[int]:
    """Into how many parts layers can be cut, so that the devices that share them are on one host."""
    workers, near = scenario.cluster.workers // scenario.split.pipeline, scenario.cluster.workers_per_host
    return [parts for parts in divisors(workers) if near % parts == 0]


def numbers_of_micro_batches(scenario: Scenario, first: int = 1) -> list[int]:
    """Of a mini-batch, into which it can be divided: from the first one on, each twice the last or more."""
    batch, found = scenario.workload.batch_size, [first]
    for parts in range(2 * first, batch + 1):
        if batch % parts == 0 and parts >= 2 * found[-1]:
            found.append(parts)
    return found


def _changes(plan: Plan) -> Iterator[Change]:
    """Of `parallelism`: one thing alone first, then two, then all; of each the smallest first."""
    scenario, split = plan.scenario, plan.scenario.split
    micro = numbers_of_micro_batches(scenario, plan.micro_batches)[1:]
    stages = [n for n in numbers_of_stages(scenario) if n > split.pipeline]
    again = [] if split.recompute else [True]
    one: list[Change] = [{"micro_batches": n} for n in micro] + [{"recompute": True} for _ in again]
    one += [{"pipeline": n} for n in stages]
    one += [{"tensor": n} for n in numbers_of_parts(scenario) if n > split.tensor]
    yield from one
    for first in one:
        for second in one:
            if [*first] < [*second] and scenario.cluster.workers % split.model_copy(
                update=first | second
            ).devices == 0:
                yield first | second
    for n in stages:
        for parts in micro if again else []:
            yield {"pipeline": n, "micro_batches": parts, "recompute": True}
