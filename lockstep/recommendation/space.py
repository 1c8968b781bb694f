"""What is searched: the strategies that a scenario's cluster can run, and the values of their knobs.

A strategy has the knobs of `KNOBS` that are among its parameters, so a new one needs nothing more. What the
file composes of several strategies' factors is one more, beside the one whose name it has. The
first value of a knob is the nearest to training in step, one update for a gradient of everybody; the further
down the list, the rarer or the staler the updates. Only the hardware that the file describes is used: fewer
workers or servers, or servers on the workers' hosts, never more machines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import lockstep
from lockstep import room
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, ScenarioError, override
from lockstep.scenarios.kinds import first
from lockstep.strategies import STRATEGIES, Strategy, StrategyError, find, own
from lockstep.strategies.collectives import Algorithm
from lockstep.strategies.strategy import FACTORS
from lockstep.workloads.layers import layers

Target = Literal["time", "throughput", "machine-hours", "cost"]

_CYCLES = (2, 4, 8, 16, 32, 64)  # mini-batches from one exchange to the next
KNOBS: dict[str, Callable[[int], Sequence[Any]]] = {
    "communication_window": lambda _: _CYCLES,
    "averaging_period": lambda _: _CYCLES,
    "bound": lambda _: (1, 2, 4, 8, 16),
    "backups": lambda workers: [ceil(share * workers) for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2)],
    "k": lambda workers: [ceil(share * workers) for share in (1, 3 / 4, 1 / 2, 1 / 4)],
    "n": lambda workers: [ceil(share * workers) for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2)],
    "probability": lambda _: (0.5, 0.2, 0.1, 0.05, 0.02),
    "local_epochs": lambda _: (1, 2, 5),
    "algorithm": lambda _: get_args(Algorithm),
    "buckets": lambda _: (1, 4, 16),
    "chunks": lambda _: (1, 4, 16),
    "zero": lambda _: (1, 2, 3),
    "units": lambda _: (1, 4, 16),
}
"""A strategy's parameter → its values with so many workers."""
_SPLIT: dict[str, Callable[[Scenario], Sequence[Any]]] = {
    "pipeline": room.numbers_of_stages,
    "tensor": room.numbers_of_parts,
    "micro_batches": room.numbers_of_micro_batches,
    "order": lambda scenario: [*dict.fromkeys([scenario.split.order, "1f1b", "gpipe", "zero-bubble"])],
    "recompute": lambda _: [False, True],
}
"""A key of `parallelism` → its values; the number of replicas follows from that of stages."""
_AXES = ("parallelism.pipeline", "parallelism.tensor")
RATE = "strategy.learning_rate"
_NONE: Mapping[str, str] = MappingProxyType({})  # factors of other strategies
CYCLES = ("communication_window", "averaging_period")
_ALL_ALIKE = ("algorithm", "buckets", "chunks", "zero", "units")
SHARED = ("cluster.workers", RATE)  # knobs whose values mean the same for all strategies
UNORDERED = (*SHARED, "cluster.servers", *map("strategy.{}".format, _ALL_ALIKE))
UNORDERED += tuple(map("parallelism.{}".format, _SPLIT))
_RATES = tuple(2.0**power for power in range(-3, 6))  # times the file's, or the default
_WORKERS = (1, 3 / 4, 1 / 2, 1 / 4)  # of the file's


class Placement(NamedTuple):
    """How many servers there are, and whether they are on the workers' hosts: a part of `cluster.servers`."""

    servers: int
    colocated: bool

    def __str__(self) -> str:
        where = " on the workers' hosts" if self.colocated else ""
        return f"{self.servers}{where}"


@dataclass(frozen=True)
class Candidate:
    """A strategy with the settings that are searched: dotted keys and their values."""

    strategy: str
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """The strategy and its settings, in a line."""
        return " ".join([self.strategy, *self.words])

    @property
    def factors(self) -> dict[str, str]:
        """What it takes from other strategies: factor → whose."""
        return {key: value for key, value in self._of_strategy.items() if key in FACTORS}

    @property
    def family(self) -> str:
        """The strategy and its factors: what is searched as one."""
        return family(self.strategy, self.factors)

    @property
    def _of_strategy(self) -> dict[str, Any]:
        return {key.removeprefix("strategy."): v for key, v in self.settings if key.startswith("strategy.")}

    @property
    def words(self) -> list[str]:
        """The settings as people write them."""
        return [f"{key.rpartition('.')[2]}={value}" for key, value in self.settings]

    @property
    def cycle(self) -> int:
        """Mini-batches that a worker makes from one exchange to the next."""
        settings = self._of_strategy
        every: list[int] = [settings[key] for key in CYCLES if key in settings]
        often: float = settings.get("probability", 1)
        return max([1, *every, ceil(1 / often)])


def family(name: str, factors: Mapping[str, str]) -> str:
    """A strategy and what it takes from others: "ssp correction=dc-asgd"."""
    return " ".join([name, *(f"{factor}={other}" for factor, other in factors.items())])


def factors_of(scenario: Scenario) -> dict[str, str]:
    """What the scenario's strategy takes from others: factor → whose."""
    name, values = scenario.strategy.name, scenario.strategy.parameters
    return {key: v for key, v in own(name, values).items() if key in FACTORS and v != name}


class Space:
    """The candidates of one strategy on a scenario's cluster. Raises ScenarioError if it cannot run there.

    A choice is an index into the values of each of the `knobs`; `start` is the one to begin with: what the
    file or the strategy says, or else the middle.
    """

    def __init__(
        self, scenario: Scenario, name: str, target: Target, factors: Mapping[str, str] = _NONE
    ) -> None:
        self.name, self._scenario = name, scenario
        self._strategy = strategy = find(name, factors)
        cluster, bare = scenario.cluster, with_strategy(scenario, name, factors)
        if strategy.owners.in_one_memory and cluster.hosts > 1:
            raise ScenarioError(f"its workers share one memory, but the cluster has {cluster.hosts} hosts")
        taken = tuple((f"strategy.{factor}", other) for factor, other in factors.items())
        self._base = taken + _base(bare, strategy, taken)
        self._base += _units(scenario, Candidate(name, self._base))
        split, self.as_given = _split(self._scenario, Candidate(name, self._base), strategy)
        self._base += tuple(split.items())
        self._given = {"cluster.workers": cluster.workers, "cluster.servers": _placement(scenario)}
        self._said = said = bare.strategy.parameters
        own = {key: said.get(key, parameter.default) for key, parameter in strategy.parameters.items()}
        usual = self._given | {f"strategy.{key}": value for key, value in own.items()} | dict(self._base)
        tried: dict[str, Sequence[Any]] = {
            "cluster.workers": [ceil(share * cluster.workers) for share in _WORKERS]
        }
        if strategy.has_servers:
            tried["cluster.servers"] = _placements(scenario)
        for key in [key for key in KNOBS if key in own]:
            also = key in said or (key in CYCLES and own[key] <= _CYCLES[-1])
            more = [own[key]] if also else []
            if key == "units":
                more.append(len(layers(scenario.workload)))
            tried[f"strategy.{key}"] = _with(KNOBS[key](cluster.workers), more)
        for key in (key for key in split if key.startswith("parallelism.")):
            tried[key] = _with(_SPLIT[key.rpartition(".")[2]](scenario), [split[key]])
        if target_learns(scenario, target) and "learning_rate" in own:
            usual[RATE] = _rate(own)
            tried[RATE] = [float(f"{usual[RATE] * times:.3g}") for times in _RATES]
        fixed = {key: taken if key == "cluster.servers" else self._base for key in tried}
        for key in fixed.keys() & {*_AXES}:  # of the other, fewer may be possible beside it
            fixed[key] = tuple(pair for pair in self._base if pair[0] not in _AXES)
        possible = {
            key: tuple(value for value in dict.fromkeys(values) if self._possible(*fixed[key], (key, value)))
            for key, values in tried.items()
        }
        self.knobs = {key: values for key, values in possible.items() if len(values) > 1}
        self.start = {
            key: values.index(usual[key]) if usual[key] in values else len(values) // 2
            for key, values in self.knobs.items()
        }

    def _possible(self, *settings: tuple[str, Any]) -> bool:
        with suppress(ScenarioError):
            apply(self._scenario, Candidate(self.name, settings), fits=False)
            return True
        return False

    @property
    def size(self) -> int:
        """How many choices there are."""
        return prod(map(len, self.knobs.values()))

    def candidate(self, choice: Mapping[str, int]) -> Candidate:
        """The candidate of a choice."""
        settings = dict(self._base) | {key: values[choice[key]] for key, values in self.knobs.items()}
        workers, servers = settings.get("cluster.workers"), settings.get("cluster.servers")
        for key, more in self._strategy.at_most.items():  # what counts workers cannot be more than there are
            if workers and f"strategy.{key}" in settings:
                settings[f"strategy.{key}"] = min(settings[f"strategy.{key}"], max(1, workers + more))
        if workers and servers and servers.colocated:  # no more of them than hosts are left
            hosts = ceil(workers / self._scenario.cluster.workers_per_host)
            settings["cluster.servers"] = servers._replace(servers=min(servers.servers, hosts))
        if settings.get("parallelism.pipeline") == 1:  # then all orders are one
            settings.pop("parallelism.order", None)
        values = {key.removeprefix("strategy."): v for key, v in settings.items()}
        for key in self._strategy.idle({**self._said, **values}):  # means nothing beside the others
            settings.pop(f"strategy.{key}", None)
        own = {key: v for key, v in settings.items() if key not in self._given or v != self._given[key]}
        return Candidate(self.name, tuple(own.items()))

    def choices(self) -> Iterator[dict[str, int]]:
        """All choices."""
        for places in product(*(range(len(values)) for values in self.knobs.values())):
            yield dict(zip(self.knobs, places, strict=True))

    def distance(self, choice: Mapping[str, int]) -> int:
        """How far a choice is from training in step, in values of ordered knobs."""
        return sum(choice[key] for key in self.knobs if key not in UNORDERED)


def target_learns(scenario: Scenario, target: Target) -> bool:
    """Whether what is learned decides: a time to a target, or what it takes until then."""
    return target != "throughput" and scenario.stop.goal is not None


def spaces(
    scenario: Scenario, target: Target, names: Sequence[str] = ()
) -> tuple[dict[str, Space], dict[str, str]]:
    """The space of each strategy that can run on the cluster, and why the others cannot; by family."""
    found: dict[str, Space] = {}
    left_out: dict[str, str] = {}
    known: dict[str, Strategy] = {}
    composed = factors_of(scenario)
    for name in STRATEGIES:
        if names and name not in names:
            continue
        for factors in [composed, {}] if composed and name == scenario.strategy.name else [{}]:
            called, strategy = family(name, factors), find(name, factors)
            same = next((other for other in found if _same(known[other], strategy)), None)
            if same is not None and not names:
                left_out[called] = f"another name for {same}"
                continue
            try:
                found[called], known[called] = Space(scenario, name, target, factors), strategy
            except ScenarioError as error:
                left_out[called] = str(error)
    return found, left_out


def _same(one: Strategy, other: Strategy) -> bool:
    from dataclasses import replace

    return replace(one, summary="") == replace(other, summary="")


def with_strategy(scenario: Scenario, name: str, factors: Mapping[str, str] = _NONE) -> Scenario:
    """The scenario with another strategy, which keeps those of its parameters that this one has too.

    Not the learning rate, if it is of another optimizer than this one has by default. Its factors are the
    given ones. Raises ScenarioError if they do not go together.
    """
    strategy = scenario.strategy
    try:
        valid = find(name, factors).parameters
    except StrategyError as error:
        raise ScenarioError(error.problem, key=error.key) from error
    kept = {key: value for key, value in strategy.parameters.items() if key in valid}
    usual = {STRATEGIES[each].defaults.get("optimizer") for each in (strategy.name, name)}
    if len(usual) > 1 and "optimizer" not in kept:
        kept.pop("learning_rate", None)
    changed = type(strategy).model_validate({"name": name, **kept, **factors})
    return scenario.model_copy(update={"strategy": changed})


def apply(scenario: Scenario, candidate: Candidate, fits: bool = True) -> Scenario:
    """The scenario of a candidate. Raises ScenarioError if the cluster cannot run it.

    With `fits`, also if it does not fit into the memory of the devices.
    """
    cluster = scenario.cluster
    settings = dict(candidate.settings)
    workers = settings.pop("cluster.workers", cluster.workers)
    found = with_strategy(scenario, candidate.strategy, candidate.factors)
    split = {key: settings.pop(key) for key in [*settings] if key.startswith("parallelism.")}
    if split:
        changes = found.split.model_dump() | {key.rpartition(".")[2]: value for key, value in split.items()}
        changes["sequence"] &= changes["tensor"] > changes["redundancy"]  # else nothing is cut
        found = override(found, "parallelism", changes)
    if workers != cluster.workers:
        found = with_workers(found, workers)
    if (servers := settings.pop("cluster.servers", None)) not in (None, _placement(scenario)):
        placed = {"count": servers.servers, "colocated": servers.colocated}
        kept = {"speed": cluster.servers.speed, "device": cluster.servers.device}
        found = override(found, "cluster.servers", {**placed, **kept})
    values = {key.removeprefix("strategy."): value for key, value in settings.items()}
    strategy = found.strategy
    changed = {"name": strategy.name, **strategy.parameters, **values}
    found = found.model_copy(update={"strategy": type(strategy).model_validate(changed)})
    plan = lockstep.check(found, fits=False)
    if fits and room.short(plan) is not None:
        raise ScenarioError("does not fit into the memory of its devices", key="cluster.memory")
    return found


def with_workers(scenario: Scenario, workers: int) -> Scenario:
    """The first so many workers, with the same mini-batches to make in all."""
    before, found = scenario.cluster, scenario
    last = {
        "worker": workers - 1,
        "host": before.host_of(workers - 1),
        "rack": before.group_of(workers - 1),
    }
    stragglers = [
        straggler.model_dump(exclude_none=True)
        for straggler in before.stragglers
        if straggler.scope is None or straggler.scope[1] <= last[straggler.scope[0]]
    ]
    if len(stragglers) < len(before.stragglers):
        found = override(found, "cluster.stragglers", stragglers)
    if before.kinds:
        cluster = found.cluster.model_copy(update={"kinds": first(before.kinds, workers)})
        found = found.model_copy(update={"cluster": cluster})
    found = override(found, "cluster.workers", workers)
    if found.stop.steps is not None:
        found = override(found, "stop.steps", ceil(found.stop.steps * before.workers / workers))
    return found


def _placements(scenario: Scenario) -> list[Placement]:
    """One server, as many as in the file, or one on every worker's host: no more machines than there are."""
    servers, given = scenario.cluster.servers, _placement(scenario)
    if servers.hierarchy or servers.copies > 1 or servers.places is not None or not servers.even:
        return [given]  # made for their number
    return [Placement(1, servers.colocated), given, Placement(scenario.cluster.hosts, True)]


def _placement(scenario: Scenario) -> Placement:
    return Placement(scenario.cluster.servers.count, scenario.cluster.servers.colocated)


def _units(scenario: Scenario, candidate: Candidate) -> tuple[tuple[str, Any], ...]:
    """As many units as the candidate needs to fit, if it computes in units, and some number will do."""
    plan = Plan.of(apply(scenario, candidate, fits=False))
    needed = room.more_units(plan) if room.short(plan) is not None else None
    return tuple((f"strategy.{key}", many) for key, many in (needed or {}).items())


def _split(scenario: Scenario, candidate: Candidate, strategy: Strategy) -> tuple[dict[str, Any], bool]:
    """The keys of `parallelism` that are searched, with values with which a candidate fits; whether the
    file's do. None, if the file has no such section and the candidate fits as it is."""
    plan = Plan.of(apply(scenario, candidate, fits=False))
    as_given = room.short(plan) is None
    if as_given and scenario.parallelism is None:
        return {}, True
    change = {} if as_given else room.smallest(plan)
    if change is None:
        problem = "does not fit into the memory of its devices, with whatever parallelism"
        raise ScenarioError(problem, key="cluster.memory")
    now = plan.scenario.split
    found = {"pipeline": now.pipeline, "micro_batches": plan.micro_batches, "order": now.order}
    if now.tensor > 1 or len(room.numbers_of_parts(scenario)) > 1:
        found["tensor"] = now.tensor
    found |= {"recompute": now.recompute, **change}
    if strategy.own_passes or plan.units is not None:
        del found["order"]
    return {f"parallelism.{key}": value for key, value in found.items()}, as_given


def _rate(given: Mapping[str, Any]) -> float:
    from lockstep.strategies.optimizers import default_rate

    rate = given["learning_rate"]
    return default_rate(given.get("optimizer", "sgd")) if rate is None else float(rate)


def _with(values: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    """Values and others, in the order that the values have."""
    found = list(dict.fromkeys([*values, *more]))
    numbers = all(isinstance(value, int | float) for value in found)
    return sorted(found, reverse=values[0] > values[-1]) if numbers else found


def _base(
    scenario: Scenario, strategy: Strategy, factors: tuple[tuple[str, Any], ...]
) -> tuple[tuple[str, Any], ...]:
    """The servers with which the strategy can run, if not with the file's. Raises ScenarioError if none."""
    try:
        lockstep.check(scenario, fits=False)
        return ()
    except ScenarioError:
        if strategy.has_servers:
            for placement in _placements(scenario):
                settings = (("cluster.servers", placement),)
                with suppress(ScenarioError):
                    apply(scenario, Candidate(scenario.strategy.name, factors + settings), fits=False)
                    return settings
        raise
