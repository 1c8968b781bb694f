"""The strategies by name: points in the product schedule × consistency × rule × codec, or whole programs.

A scenario names a point, and may take a factor from another: `{name: ssp, rule: dc-asgd, codec: 1-bit}`.
"""

import difflib
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from strategies import consistency, local_steps, relays, rules, schedules
from strategies.all_reduce import all_reduce
from strategies.bounds import problem
from strategies.codecs import Codec
from strategies.hogwild import hogwild
from strategies.node import Node
from strategies.optimizers import optimizer, server_optimizer
from strategies.parameter_server import ParameterServer

Program = Callable[[Node], Coroutine[Any, Any, None]]


class StrategyError(ValueError):
    """A scenario names a strategy, or a parameter of one, that is not there or may not have that value."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


@dataclass(frozen=True)
class Strategy:
    """A worker's program and, with a parameter server, the server's consistency and rule.

    A schedule is given its node, with servers its view of them (ParameterServer) and, if it has an argument
    of that name, an `optimizer` for its local steps. The keyword-only arguments of all parts are the
    strategy's parameters; each is annotated with its bounds and has a default. Parts that name the same
    parameter share it.
    """

    schedule: Callable[..., Coroutine[Any, Any, None]]
    consistency: Callable[..., Coroutine[Any, Any, None]] | None = None
    rule: Callable[..., rules.Correction] | None = None
    """How the server corrects each push for its staleness; None: not at all."""

    # of the schedule
    pushes: Literal["gradients", "moves"] = "gradients"
    """What is pushed: the server descends along gradients, and adds moves."""
    commits: bool = False
    """Whether it pulls, or pushes without wanting an answer, at any time: the server has to bear that."""

    # of the consistency
    equal_steps: bool = False
    """Workers meet in every round: mini-batches are dealt out evenly, not first come first served."""
    relay: Callable[..., Coroutine[Any, Any, None]] | None = None
    """What stands between workers and server in a hierarchy; None: the strategy has no such form."""
    sharded: bool = True
    """Whether the parameters can be cut into shards, each with a server."""
    at_any_time: bool = False
    """Whether the server answers pulls, and takes commits, at any time."""

    # of both
    tied: bool = False
    """Schedule and consistency are made for each other: neither goes with another's."""
    models: Literal["same", "own", "shared"] = "same"
    """Without servers: all workers hold the same model, or each its own, whose mean is evaluated, or there is
    one, in memory that they share."""
    at_most: Mapping[str, int] = field(default_factory=dict)
    """Parameters that count workers: how much more than there are workers each may be."""

    @property
    def has_servers(self) -> bool:
        """Whether the parameters live on servers (otherwise every worker holds them all)."""
        return self.consistency is not None

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """What a scenario may set: name → annotation and default."""
        found: dict[str, inspect.Parameter] = {}
        for part in self._parts():
            found |= {name: p for name, p in _keywords(part).items() if name not in found}
        if self.consistency is not None and "chunks" not in _keywords(self.consistency):
            found.pop("chunks", None)  # a schedule in chunks, with a server that knows none
        return found

    def _parts(self) -> list[Callable[..., Any]]:
        found: list[Callable[..., Any]] = [self.schedule]
        if self._steps_locally:
            found.append(optimizer)
        if self.consistency is not None:
            found += [self.consistency, self._server_optimizer]
            found += [self.rule] if self.rule else []
            found.append(ParameterServer)
        return found

    @property
    def _steps_locally(self) -> bool:
        return "optimizer" in inspect.signature(self.schedule).parameters

    @property
    def _server_optimizer(self) -> Callable[..., Any]:
        return optimizer if self.pushes == "gradients" else server_optimizer

    def program(self, kind: str, values: Mapping[str, Any]) -> Program:
        """The program of a worker, server or relay, with the parameters' values filled in."""
        own = {name: value for name, value in values.items() if name in self.parameters}
        if kind == "worker":
            return lambda node: self._work(node, own)
        if kind == "server":
            return lambda node: self._serve(node, own)
        assert self.relay is not None, "this strategy has no relays"
        relay = self.relay
        return lambda node: relay(node, **_chosen(relay, own))

    def _work(self, node: Node, values: Mapping[str, Any]) -> Coroutine[Any, Any, None]:
        given: list[Any] = [node]
        if self.has_servers:
            given.append(ParameterServer(node, **_chosen(ParameterServer, values)))
        if self._steps_locally:
            given.append(optimizer(**_chosen(optimizer, values)))
        return self.schedule(*given, **_chosen(self.schedule, values))

    def _serve(self, node: Node, values: Mapping[str, Any]) -> Coroutine[Any, Any, None]:
        assert self.consistency is not None, "this strategy has no servers"
        make = self._server_optimizer
        rule = rules.Rule(
            make(**_chosen(make, values)),
            self.rule(**_chosen(self.rule, values)) if self.rule else None,
            Codec(*(values.get(key, self.parameters[key].default) for key in ("codec", "codec_ratio"))),
        )
        return self.consistency(node, rule, **_chosen(self.consistency, values))


FACTORS = {
    "schedule": ("schedule", "pushes", "commits"),
    "consistency": ("consistency", "equal_steps", "relay", "sharded", "at_any_time"),
    "rule": ("rule",),
}
"""What a scenario may take from another strategy with a parameter server, and what comes with it."""


def _keywords(part: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(part).parameters.values()
    return {p.name: p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _chosen(part: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in _keywords(part) if name in values}


_BARRIER: dict[str, Any] = {
    "consistency": consistency.barrier,
    "equal_steps": True,
    "relay": relays.gather,
}
_IMMEDIATE: dict[str, Any] = {
    "consistency": consistency.immediate,
    "relay": relays.combine,
    "at_any_time": True,
}
_MOVES: dict[str, Any] = {"pushes": "moves"}
_COMMITS: dict[str, Any] = {"pushes": "moves", "commits": True}
_AGN = Strategy(local_steps.agn, **_MOVES, **_IMMEDIATE)

STRATEGIES: dict[str, Strategy] = {
    "synchronous": Strategy(
        schedules.in_chunks,
        consistency.barrier_in_chunks,
        equal_steps=True,
        relay=relays.gather_in_chunks,
    ),
    "backup-workers": Strategy(
        schedules.every_batch,
        consistency.first_of_more,
        sharded=False,
        at_most={"backups": -1},
    ),
    "k-sync": Strategy(
        schedules.until_updated,
        consistency.first_k_workers,
        equal_steps=True,
        tied=True,
        at_most={"k": 0},
    ),
    "k-batch-sync": Strategy(schedules.restarting, consistency.first_k_batches, tied=True),
    "model-averaging": Strategy(local_steps.averaging, **_MOVES, **_BARRIER),
    "easgd": Strategy(local_steps.easgd, tied=True, **_MOVES, **_BARRIER),
    "bmuf": Strategy(
        local_steps.block_averaging,
        consistency.blocks,
        equal_steps=True,
        relay=relays.gather,
        tied=True,
        **_MOVES,
    ),
    "fedavg": Strategy(
        local_steps.fedavg, consistency.participants, equal_steps=True, sharded=False, tied=True, **_MOVES
    ),
    "fedprox": Strategy(
        local_steps.fedprox, consistency.participants, equal_steps=True, sharded=False, tied=True, **_MOVES
    ),
    "asynchronous": Strategy(schedules.every_batch, **_IMMEDIATE),
    "downpour": Strategy(local_steps.downpour, **_COMMITS, **_IMMEDIATE),
    "agn": _AGN,
    "adag": _AGN,
    "adag-distance": Strategy(local_steps.downpour, rule=rules.scaled_by_distance, **_COMMITS, **_IMMEDIATE),
    "aeasgd": Strategy(local_steps.aeasgd, **_COMMITS, **_IMMEDIATE),
    "eamsgd": Strategy(local_steps.eamsgd, **_COMMITS, **_IMMEDIATE),
    "k-async": Strategy(schedules.every_batch, consistency.every_k_workers, sharded=False, at_most={"k": 0}),
    "k-batch-async": Strategy(schedules.every_batch, consistency.every_k_batches, at_any_time=True),
    "soft-sync": Strategy(schedules.every_batch, consistency.soft_sync, at_any_time=True, at_most={"n": 0}),
    "staleness-aware": Strategy(schedules.every_batch, rule=rules.rate_over_staleness, **_IMMEDIATE),
    "dynsgd": Strategy(local_steps.downpour, rule=rules.scaled_by_staleness, **_COMMITS, **_IMMEDIATE),
    "dc-asgd": Strategy(schedules.every_batch, rule=rules.delay_compensated, **_IMMEDIATE),
    "ssp": Strategy(schedules.every_batch, consistency.bounded, at_any_time=True),
    "bounded-delay": Strategy(schedules.pipelined, consistency.every_clock, at_any_time=True),
    "all-reduce": Strategy(all_reduce, equal_steps=True),
    "hogwild": Strategy(hogwild, models="shared"),
}


def find(name: str, values: Mapping[str, Any]) -> Strategy:
    """The strategy of that name and those factors, once its parameters' values are known to be valid.

    A parameter that only other strategies have is allowed, so that a scenario can be run with another
    strategy by changing the name alone: see `unused`. Raises StrategyError with the scenario's key and what
    would be valid.
    """
    strategy = _composed(name, values)
    known = {key: p for other in STRATEGIES.values() for key, p in other.parameters.items()}
    known |= strategy.parameters
    for key, value in values.items():
        if key in FACTORS:
            continue
        if key not in known:
            hint = _nearest(key, [*strategy.parameters, *(FACTORS if strategy.has_servers else ())])
            raise StrategyError(f"strategy.{key}", f"unknown parameter of {name}{hint}")
        wrong = problem(value, known[key].annotation)
        if wrong is not None:
            raise StrategyError(f"strategy.{key}", wrong)
    return strategy


def _composed(name: str, values: Mapping[str, Any]) -> Strategy:
    """The named strategy with the factors that are taken from others."""
    if name not in STRATEGIES:
        raise StrategyError("strategy.name", f"unknown strategy {name!r}{_nearest(name, STRATEGIES)}")
    base = STRATEGIES[name]
    found, served = base, [other for other, s in STRATEGIES.items() if s.has_servers]
    for factor, fields in FACTORS.items():
        source = values.get(factor, name)
        if factor in values and source not in served:
            problem = f"{source!r} is not a strategy with a server"
            raise StrategyError(f"strategy.{factor}", problem + _nearest(str(source), served))
        if source == name or not base.has_servers:
            continue
        other = STRATEGIES[source]
        for owner, strategy in ((name, base), (source, other)):
            if strategy.tied and factor != "rule":
                problem = f"the schedule and the consistency of {owner} go with each other only"
                raise StrategyError(f"strategy.{factor}", problem)
        taken = {key: getattr(other, key) for key in fields}
        found = replace(found, **taken, at_most={**found.at_most, **other.at_most})
    if found.commits and not found.at_any_time:
        able = ", ".join(other for other, s in STRATEGIES.items() if s.at_any_time and not s.tied)
        problem = f"{values.get('schedule', name)}'s schedule needs a server that answers at any time: {able}"
        raise StrategyError("strategy.consistency", problem)
    if found.rule is rules.delay_compensated and found.pushes != "gradients":
        problem = "compensates gradients; the schedule pushes how far a worker has moved"
        raise StrategyError("strategy.rule", problem)
    return found


def fits(name: str, values: Mapping[str, Any], cluster: Any) -> None:
    """Check that a strategy `find` has found can run on a scenario's `cluster`; raises StrategyError."""
    strategy = find(name, values)
    parameters = strategy.parameters
    for key, more in strategy.at_most.items():
        value = values.get(key, parameters[key].default) if key in parameters else 0
        if value > cluster.workers + more:
            limit = f"must be at most {cluster.workers + more}, with {cluster.workers} workers"
            raise StrategyError(f"strategy.{key}", f"{limit}, not {value}")
    if strategy.has_servers and not strategy.sharded and cluster.servers.count > 1:
        problem = f"{name} must have one server, not {cluster.servers.count}"
        raise StrategyError("cluster.servers.count", problem)
    if not (cluster.servers.hierarchy and strategy.has_servers):
        return
    if strategy.relay is None:
        able = ", ".join(other for other, s in STRATEGIES.items() if s.relay is not None)
        problem = f"{name} cannot have relays between workers and servers; remove it, or use one of {able}"
        raise StrategyError("cluster.servers.hierarchy", problem)
    if strategy.rule is not None or values.get("codec", "none") != "none":
        problem = "relays push sums, which can neither be encoded nor corrected for each worker's staleness"
        raise StrategyError("cluster.servers.hierarchy", f"{problem}; remove it")


def unused(name: str, values: Mapping[str, Any]) -> list[str]:
    """Warnings about parameters that a strategy does not have."""
    strategy = _composed(name, values)
    valid = {*strategy.parameters, *(FACTORS if strategy.has_servers else ())}
    warnings = [f"strategy.{key} means nothing to {name}: ignored" for key in values if key not in valid]
    if "momentum" in values and values.get("optimizer") in ("adagrad", "rmsprop"):
        warnings.append(f"strategy.momentum means nothing to {values['optimizer']}: ignored")
    return warnings


def _nearest(word: str, valid: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(valid), n=1)
    return (f"; did you mean {near[0]!r}?" if near else "") + f" (valid: {', '.join(valid)})"
