"""The strategies by name: points in the product schedule × consistency × rule, or whole programs."""

import difflib
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from strategies import consistency, rules, schedules
from strategies.all_reduce import all_reduce
from strategies.bounds import problem
from strategies.node import Node

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

    @property
    def has_servers(self) -> bool:
        """Whether the parameters live on servers (otherwise every worker holds them all)."""
        return self.consistency is not None

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """What a scenario may set: name → annotation and default."""
        parts = [self.schedule, self.rule] + ([self.consistency] if self.consistency else [])
        return {name: parameter for part in parts for name, parameter in _keywords(part).items()}

    def worker(self, values: Mapping[str, Any]) -> Program:
        """The program of a worker, with the parameters' values filled in."""
        return lambda node: self.schedule(node, **_chosen(self.schedule, values))

    def server(self, values: Mapping[str, Any]) -> Program:
        """The program of a server, with the parameters' values filled in."""
        serve = self.consistency
        assert serve is not None, "this strategy has no servers"
        return lambda node: serve(node, self.rule(**_chosen(self.rule, values)), **_chosen(serve, values))


def _keywords(part: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(part).parameters.values()
    return {p.name: p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _chosen(part: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in _keywords(part) if name in values}


STRATEGIES: dict[str, Strategy] = {
    "synchronous": Strategy(schedules.every_batch, consistency.barrier, rules.sgd, equal_steps=True),
    "asynchronous": Strategy(schedules.every_batch, consistency.immediate, rules.sgd),
    "downpour": Strategy(schedules.downpour, consistency.immediate),
    "all-reduce": Strategy(all_reduce, equal_steps=True),
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


def unused(name: str, values: Mapping[str, Any]) -> list[str]:
    """Warnings about parameters that a strategy does not have."""
    strange = [key for key in values if key not in STRATEGIES[name].parameters]
    return [f"strategy.{key} means nothing to {name}: ignored" for key in strange]


def _nearest(word: str, valid: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(valid), n=1)
    return (f"; did you mean {near[0]!r}?" if near else "") + f" (valid: {', '.join(valid)})"
