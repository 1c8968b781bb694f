"""A strategy: its parts, the parameters they have, and the programs they make."""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from lockstep.strategies.bounds import BelongsTo, owners
from lockstep.strategies.codecs import Codec
from lockstep.strategies.node import Node
from lockstep.strategies.optimizers import optimizer, server_optimizer
from lockstep.strategies.owners import Owners, Replicated
from lockstep.strategies.parameter_server import ParameterServer
from lockstep.strategies.rules import Correction, Rule

Program = Callable[[Node], Coroutine[Any, Any, None]]


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
    rule: Callable[..., Correction] | None = None
    """How the server corrects each push for its staleness; None: not at all."""

    # of the schedule
    pushes: Literal["gradients", "moves"] = "gradients"
    """What is pushed: the server descends along gradients, and adds moves."""
    commits: bool = False
    """Whether it pulls, or pushes without waiting for an answer, at any time: the server has to bear that."""
    awaits: Literal["answers", "clocks", "nothing"] = "answers"
    """What it waits for before it computes on: answers; or, reading a copy of its own, for its clock."""

    # of the consistency
    equal_steps: bool = False
    """Workers meet in every round: mini-batches are dealt out evenly, not first come first served."""
    relay: Callable[..., Coroutine[Any, Any, None]] | None = None
    """What stands between workers and server in a hierarchy; None: the strategy has no such form."""
    sharded: bool = True
    """Whether the parameters can be cut into shards, each with a server."""
    at_any_time: bool = False
    """Whether the server answers pulls, and takes commits, at any time."""
    holds_back: Literal["nothing", "reads", "answers"] = "nothing"
    """Which answers a server that answers at any time keeps: those to whoever would read too early (such a
    server tells its clock), or all until everybody is as far."""
    sums_along: bool = False
    """Whether the server averages other vectors along (ParameterServer.push_pull_along)."""

    own_optimizer: bool = False
    """Whether it brings what the server does with a sum, so that no optimizer can be chosen."""

    # of both
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of shared parameters that this strategy has by default, instead of theirs."""
    pooled: bool = False
    """The server chooses who works: the mini-batches of all workers are one budget, whoever makes them."""
    tied: bool = False
    """Schedule and consistency are made for each other: neither goes with another's."""
    owners: type[Owners] = Replicated
    """Who owns the parameters where there are no servers."""
    at_most: Mapping[str, int] = field(default_factory=dict)
    """Parameters that count workers: how much more than there are workers each may be."""
    summary: str = ""
    """What it does, in a dozen words, and the source."""

    @property
    def has_servers(self) -> bool:
        """Whether the parameters live on servers (otherwise every worker holds them all)."""
        return self.consistency is not None

    @property
    def own_parameters(self) -> dict[str, inspect.Parameter]:
        """Those that it does not share with all strategies of its kind, by way of optimizers and codecs."""
        shared = {name for part in (optimizer, server_optimizer, ParameterServer) for name in _keywords(part)}
        rates = _keywords(self.schedule)  # a schedule's own learning rate
        return {name: p for name, p in self.parameters.items() if name not in shared or name in rates}

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """What a scenario may set: name → annotation and default."""
        found: dict[str, inspect.Parameter] = {}
        for part in self._parts():
            found |= {name: p for name, p in _keywords(part).items() if name not in found}
        if self.consistency is not None:
            knowing = ["chunks" in _keywords(part) for part in (self.schedule, self.consistency)]
            if not all(knowing):
                found.pop("chunks", None)  # what one side would cut, the other would not put together
        usual = {name: value for name, value in self.defaults.items() if name in found}
        return found | {name: found[name].replace(default=value) for name, value in usual.items()}

    @property
    def belongings(self) -> dict[str, list[BelongsTo]]:
        """What each parameter belongs to, if it does not stand by itself."""
        known, found = self.parameters, dict[str, list[BelongsTo]]()
        for part in reversed(self._parts()):  # the first that has a parameter says what it belongs to
            for name, p in _marked(part).items():
                found[name] = [mark for mark in owners(p.annotation)[1] if mark.key in known]
        return {name: marks for name, marks in found.items() if marks and name in known}

    def idle(self, values: Mapping[str, Any]) -> dict[str, list[BelongsTo]]:
        """Which of the values are given without what they belong to, and what that is."""
        given = {name: p.default for name, p in self.parameters.items()} | dict(values)
        apart = {
            name: all(given[mark.key] not in mark.values for mark in marks)
            for name, marks in self.belongings.items()
        }
        return {name: self.belongings[name] for name in values if apart.get(name)}

    def _parts(self) -> list[Callable[..., Any]]:
        found: list[Callable[..., Any]] = [self.schedule]
        if self._steps_locally:
            found.append(optimizer)
        if self.consistency is not None:
            found += [self.consistency] if self.own_optimizer else [self.consistency, self._server_optimizer]
            found += [self.rule] if self.rule else []
            found.append(ParameterServer)
        return found

    @property
    def _steps_locally(self) -> bool:
        return "optimizer" in _arguments(self.schedule)

    @property
    def _server_optimizer(self) -> Callable[..., Any]:
        return optimizer if self.pushes == "gradients" else server_optimizer

    def program(self, kind: str, values: Mapping[str, Any]) -> Program:
        """The program of a worker, server or relay, with the parameters' values filled in."""
        known = self.parameters
        own = {**self.defaults, **{name: value for name, value in values.items() if name in known}}
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
        make, given = (
            self._server_optimizer,
            {key: p.default for key, p in self.parameters.items()} | dict(values),
        )
        rule = Rule(
            make(**_chosen(make, values)),
            self.rule(**_chosen(self.rule, values)) if self.rule else None,
            Codec(given["codec"], given["codec_ratio"]),
            Codec(given["answer_codec"], given["codec_ratio"]),
        )
        return self.consistency(node, rule, **_chosen(self.consistency, values))


FACTORS = {
    "schedule": ("schedule", "pushes", "commits", "awaits"),
    "consistency": (
        *("consistency", "equal_steps", "relay", "sharded"),
        *("at_any_time", "holds_back", "sums_along"),
    ),
    "rule": ("rule",),
}
"""What a scenario may take from another strategy with a parameter server, and what comes with it."""


@cache  # every node asks again
def _arguments(part: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(part).parameters


@cache
def _keywords(part: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return {name: p.replace(annotation=owners(p.annotation)[0]) for name, p in _marked(part).items()}


@cache
def _marked(part: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a part, with what each belongs to."""
    return {p.name: p for p in _arguments(part).values() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _chosen(part: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in _keywords(part) if name in values}
