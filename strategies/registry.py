"""The strategies by name: points in the product schedule × consistency × rule, or whole programs."""

import difflib
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from strategies import consistency, relays, rules, schedules
from strategies.ad_psgd import ad_psgd
from strategies.all_reduce import all_reduce
from strategies.bounds import misfit, problem
from strategies.d_psgd import d_psgd
from strategies.gossip import gossip
from strategies.node import Node
from strategies.sgp import sgp

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

    The keyword-only arguments of the three parts are the strategy's parameters; each is annotated with
    its bounds and has a default. Parts that name the same parameter share it.
    """

    schedule: Callable[..., Coroutine[Any, Any, None]]
    consistency: Callable[..., Coroutine[Any, Any, None]] | None = None
    rule: Callable[..., rules.Transformation] = rules.add
    equal_steps: bool = False
    """Workers meet in every round: mini-batches are dealt out evenly, not first come first served."""
    relay: Callable[..., Coroutine[Any, Any, None]] | None = None
    """What stands between workers and server in a hierarchy; None: the strategy has no such form."""
    sharded: bool = True
    """Whether the parameters can be cut into shards, each with a server."""
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
        parts = [self.schedule, self.rule] + ([self.consistency] if self.consistency else [])
        return {name: parameter for part in parts for name, parameter in _keywords(part).items()}

    def program(self, kind: str, values: Mapping[str, Any]) -> Program:
        """The program of a worker, server or relay, with the parameters' values filled in."""
        if kind == "server":
            serve = self.consistency
            assert serve is not None, "this strategy has no servers"
            return lambda node: serve(node, self.rule(**_chosen(self.rule, values)), **_chosen(serve, values))
        part = self.schedule if kind == "worker" else self.relay
        assert part is not None, "this strategy has no relays"
        own = {name: value for name, value in values.items() if name in self.parameters}
        return lambda node: part(node, **_chosen(part, own))


def _keywords(part: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(part).parameters.values()
    return {p.name: p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _chosen(part: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in _keywords(part) if name in values}


STRATEGIES: dict[str, Strategy] = {
    "synchronous": Strategy(
        schedules.in_chunks,
        consistency.barrier_in_chunks,
        rules.sgd,
        equal_steps=True,
        relay=relays.gather_in_chunks,
    ),
    "backup-workers": Strategy(
        schedules.every_batch,
        consistency.first_of_more,
        rules.sgd,
        sharded=False,
        at_most={"backups": -1},
    ),
    "k-sync": Strategy(
        schedules.until_updated, consistency.first_k_workers, rules.sgd, equal_steps=True, at_most={"k": 0}
    ),
    "k-batch-sync": Strategy(schedules.restarting, consistency.first_k_batches, rules.sgd),
    "model-averaging": Strategy(
        schedules.averaging, consistency.barrier, equal_steps=True, relay=relays.gather
    ),
    "asynchronous": Strategy(schedules.every_batch, consistency.immediate, rules.sgd, relay=relays.combine),
    "downpour": Strategy(schedules.downpour, consistency.immediate, relay=relays.combine),
    "k-async": Strategy(
        schedules.every_batch, consistency.every_k_workers, rules.sgd, sharded=False, at_most={"k": 0}
    ),
    "k-batch-async": Strategy(schedules.every_batch, consistency.every_k_batches, rules.sgd),
    "soft-sync": Strategy(schedules.every_batch, consistency.soft_sync, rules.sgd, at_most={"n": 0}),
    "ssp": Strategy(schedules.every_batch, consistency.bounded, rules.sgd),
    "all-reduce": Strategy(all_reduce, equal_steps=True),
    "d-psgd": Strategy(d_psgd, equal_steps=True, models="own"),
    "sgp": Strategy(sgp, equal_steps=True, models="own"),
    "ad-psgd": Strategy(ad_psgd, models="own"),
    "gossip": Strategy(gossip, models="own"),
}


def find(name: str, values: Mapping[str, Any]) -> Strategy:
    """The strategy of that name, once its parameters' values are known to be valid.

    A parameter that only other strategies have is allowed, so that a scenario can be run with another
    strategy by changing the name alone: see `unused`. Raises StrategyError with the scenario's key and what
    would be valid.
    """
    if name not in STRATEGIES:
        raise StrategyError("strategy.name", f"unknown strategy {name!r}{_nearest(name, STRATEGIES)}")
    strategy = STRATEGIES[name]
    known = {key: p for other in STRATEGIES.values() for key, p in other.parameters.items()}
    known |= strategy.parameters
    for key, value in values.items():
        if key not in known:
            hint = _nearest(key, strategy.parameters)
            raise StrategyError(f"strategy.{key}", f"unknown parameter of {name}{hint}")
        wrong = problem(value, known[key].annotation)
        if wrong is not None:
            raise StrategyError(f"strategy.{key}", wrong)
    return strategy


def fits(name: str, values: Mapping[str, Any], cluster: Any) -> None:
    """Check that a strategy `find` has found can run on a scenario's `cluster`; raises StrategyError."""
    strategy = STRATEGIES[name]
    for key, more in strategy.at_most.items():
        value = values.get(key, strategy.parameters[key].default)
        if value > cluster.workers + more:
            limit = f"must be at most {cluster.workers + more}, with {cluster.workers} workers"
            raise StrategyError(f"strategy.{key}", f"{limit}, not {value}")
    for key, parameter in strategy.parameters.items():
        wrong = misfit(values.get(key, parameter.default), parameter.annotation, cluster.workers)
        if wrong is not None:
            raise StrategyError(f"strategy.{key}", wrong)
    if strategy.has_servers and not strategy.sharded and cluster.servers.count > 1:
        problem = f"{name} must have one server, not {cluster.servers.count}: the workers could wait for ever"
        raise StrategyError("cluster.servers.count", problem)
    if cluster.servers.hierarchy and strategy.has_servers and strategy.relay is None:
        able = ", ".join(other for other, s in STRATEGIES.items() if s.relay is not None)
        problem = f"{name} cannot have relays between workers and servers; remove it, or use one of {able}"
        raise StrategyError("cluster.servers.hierarchy", problem)


def unused(name: str, values: Mapping[str, Any]) -> list[str]:
    """Warnings about parameters that a strategy does not have."""
    strange = [key for key in values if key not in STRATEGIES[name].parameters]
    return [f"strategy.{key} means nothing to {name}: ignored" for key in strange]


def _nearest(word: str, valid: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(valid), n=1)
    return (f"; did you mean {near[0]!r}?" if near else "") + f" (valid: {', '.join(valid)})"
