"""A strategy: its factors, the parameters they have, and the programs they make."""

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeVar

from lockstep.strategies.bounds import described, optional
from lockstep.strategies.codecs import Codec
from lockstep.strategies.corrections import Correction, UpdateRule
from lockstep.strategies.factors import (
    Offer,
    Pushes,
    Run,
    StalenessCorrection,
    Synchronisation,
    WorkerLoop,
)
from lockstep.strategies.kept import Savers
from lockstep.strategies.marks import (
    AtMostWorkers,
    BelongsTo,
    InParts,
    InPasses,
    Keeps,
    Mark,
    Means,
    OnBothSides,
    split,
)
from lockstep.strategies.node import Node
from lockstep.strategies.optimizers import Transformation, optimizer, server_optimizer
from lockstep.strategies.owners import Owners, Replicated
from lockstep.strategies.parameter_server import ParameterServer
from lockstep.strategies.shares import Shares

Program = Callable[[Node], Coroutine[Any, Any, None]]
M = TypeVar("M", bound=Mark)


def one_version(stage: int, stages: int) -> int:
    """The newest."""
    return 1


@dataclass(frozen=True, repr=False)
class Strategy:
    """A worker's program or, with a parameter server, a worker loop, a synchronisation model, a correction.

    A worker loop is given its node, with servers its view of them (ParameterServer) and, if it has an
    argument of that name, an `optimizer` for its local steps. The keyword-only arguments of all parts are the
    strategy's parameters; each is annotated with its bounds and has a default. Parts that name the same
    parameter share it.
    """

    worker_loop: Callable[..., Run]
    consistency: Synchronisation[...] | None = None
    correction: StalenessCorrection[..., Correction] | None = None
    """How the server corrects each push for its staleness; None: not at all."""

    equal_steps: bool = False
    """Workers meet in every round: mini-batches are dealt out evenly, not first come first served. With
    servers it is the synchronisation model that says so."""
    in_step: bool = False
    """Workers compute every gradient together, from the same parameters; with servers it follows from the
    worker loop and the synchronisation model."""
    alike: bool = False
    """Every worker does what all others do, whatever its rank, and meets them in collectives only."""
    repeats: bool = False
    """Every worker does the same in each of its mini-batches, whatever the time, and so does a server. Of
    messages that are received of anybody it does not matter who sends first, nor whether they are early. The
    simulator then need not run it again and again."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of shared parameters that this strategy has by default, instead of theirs; with an optimizer
    among them, all others are of that one."""
    owners: type[Owners] = Replicated
    """Who owns the parameters where there are no servers."""
    shares: Callable[..., Shares] | None = None
    """Instead: what each worker owns of them; some of the strategy's parameters are its arguments."""
    micro_batches: int | None = None
    """Of a mini-batch, unless the scenario says; None: as many as a replica has stages."""
    own_passes: bool = False
    """It does the passes of its gradients by itself, of several mini-batches at once."""
    savers: Savers = Savers.NOBODY
    """Who writes checkpoints, from which all can go on (kept.py); with servers these do."""
    keeps: int = 0
    """Vectors of its parameters' size that a worker has besides them, a gradient and its optimizer's state;
    with servers it is the worker loop that says so."""
    goes_on: bool = False
    """Workers hear who leaves and joins, and go on meanwhile; with servers the synchronisation model says."""
    versions: Callable[[int, int], int] = one_version
    """Of its parameters that a device has at once, by its stage and how many stages there are."""
    summary: str = ""
    """What it does, in a dozen words, and the source."""

    def __post_init__(self) -> None:
        if self.consistency is not None:
            object.__setattr__(self, "equal_steps", self.consistency.equal_steps)
            object.__setattr__(self, "savers", Savers.OWNERS)
        if isinstance(self.worker_loop, WorkerLoop):
            object.__setattr__(self, "keeps", self.worker_loop.keeps)
        if isinstance(self.worker_loop, WorkerLoop) and self.consistency is not None:
            everyone = self.consistency.equal_steps and Offer.ANSWERS in self.consistency.offers
            every = self.worker_loop.needs == {Offer.ANSWERS} and self.pushes == "gradients"
            object.__setattr__(self, "in_step", everyone and every)

    @property
    def has_servers(self) -> bool:
        """Whether the parameters live on servers (otherwise every worker holds them all)."""
        return self.consistency is not None

    @property
    def pushes(self) -> Pushes:
        """What travels to the servers."""
        return self.worker_loop.pushes if isinstance(self.worker_loop, WorkerLoop) else "gradients"

    @property
    def gives_up(self) -> bool:
        """Whether workers give up gradients that come too late, and go on with the next mini-batch."""
        rounds = {Offer.K_WORKERS, Offer.K_GRADIENTS}
        return isinstance(self.worker_loop, WorkerLoop) and not rounds.isdisjoint(self.worker_loop.needs)

    @property
    def pooled(self) -> bool:
        """The server chooses who works: all workers' mini-batches are one budget, whoever makes them."""
        return self.consistency is not None and self.consistency.pooled

    @property
    def elastic(self) -> bool:
        """Whether the job goes on with those who are there while others leave and come back."""
        return self.goes_on if self.consistency is None else self.consistency.elastic

    @property
    def resizes(self) -> bool:
        """Whether workers can join and leave by plan: others, or servers, have what a new one begins with."""
        return self.elastic and (self.has_servers or self.owners is Replicated)

    @property
    def sharded(self) -> bool:
        """Whether the parameters can be cut into shards, each with a server."""
        return self.consistency is None or self.consistency.sharded

    @property
    def relay(self) -> Callable[..., Run] | None:
        """What stands between workers and servers in a hierarchy; None: the strategy has no such form."""
        return self.consistency.relay if self.consistency is not None else None

    @property
    def own_parameters(self) -> dict[str, inspect.Parameter]:
        """Those that it does not share with all strategies of its kind, by way of optimizers and codecs."""
        shared = {name for part in (optimizer, server_optimizer, ParameterServer) for name in _keywords(part)}
        rates = _keywords(self.worker_loop)  # a worker loop's own learning rate
        return {name: p for name, p in self.parameters.items() if name not in shared or name in rates}

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """What a scenario may set: name → annotation and default."""
        found: dict[str, inspect.Parameter] = {}
        for part in self._parts():
            found |= {name: p for name, p in _keywords(part).items() if name not in found}
        for name, part, _ in self.marks(OnBothSides):
            other = self.consistency if part is self.worker_loop else self.worker_loop
            if other is None or name not in _keywords(other):
                found.pop(name, None)
        usual = {name: value for name, value in self.defaults.items() if name in found}
        return found | {name: found[name].replace(default=value) for name, value in usual.items()}

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The names of all that a scenario may set: of `parameters`, and of factors."""
        return *self.parameters, *(FACTORS if self.has_servers else ())

    def marks(self, kind: type[M]) -> Iterator[tuple[str, Callable[..., Any], M]]:
        """The marks of that kind: which parameter has it, in which part."""
        for part in self._parts():
            for name, marks in _marks(part).items():
                yield from ((name, part, mark) for mark in marks if isinstance(mark, kind))

    def pieces(self, values: Mapping[str, Any]) -> int | None:
        """Of the model, on each device, in which it computes gradients by itself; None: the scenario says."""
        given = {name: p.default for name, p in self.parameters.items()} | dict(values)
        for name, _, mark in self.marks(InPasses):
            if given[name] is not None and (not mark.key or given[mark.key] in mark.values):
                return int(given[name])
        return None

    def kept(self, values: Mapping[str, Any]) -> int:
        """Vectors that a worker has: `keeps`, and what its parameters say."""
        given = {name: p.default for name, p in self.parameters.items()} | dict(values)
        return self.keeps + sum(int(given[name]) for name, _, _ in self.marks(Keeps))

    def in_parts(self, values: Mapping[str, Any], servers: int) -> str | None:
        """Why whoever uses a gradient has only a part of it at a time; None: it is whole, or can be had."""
        if self.pushes == "deltas":
            return None
        if self.has_servers and servers > 1:
            return f"each of {servers} servers has a part of it"
        given = {name: p.default for name, p in self.parameters.items()} | dict(values)
        for name, _, mark in self.marks(InParts):
            if name in self.parameters and (given[name] or 0) > mark.at_most:
                return f"it comes in parts ({name}: {given[name]})"
        return None

    def shared(
        self, values: Mapping[str, Any], hosts: Sequence[int], pieces: Sequence[slice]
    ) -> Shares | None:
        """What its workers share out of a slice of the parameters; None: each has all of it.

        hosts: of each worker; pieces: of the model, in the slice. Raises StrategyError.
        """
        if self.shares is None:
            return None
        own = {name: value for name, value in values.items() if name in self.parameters}
        return self.shares(hosts, pieces, **_chosen(self.shares, self._filled(own)))

    @property
    def at_most(self) -> dict[str, int]:
        """Parameters that count workers: how much more than there are workers each may be."""
        return {name: mark.more for name, _, mark in self.marks(AtMostWorkers)}

    @cached_property
    def two_meanings(self) -> dict[str, dict[Callable[..., Any], str]]:
        """Parameters of one name that do not mean the same to all parts that have them: part → meaning."""
        found: dict[str, dict[Callable[..., Any], str]] = {}
        for part in self._parts():
            for name in _keywords(part):
                found.setdefault(name, {})[part] = _meaning(part, name)
        return {name: meanings for name, meanings in found.items() if len({*meanings.values()}) > 1}

    @property
    def belongings(self) -> dict[str, list[BelongsTo]]:
        """What each parameter belongs to, if it does not stand by itself."""
        known, found = self.parameters, dict[str, list[BelongsTo]]()
        for part in reversed(self._parts()):  # the first that has a parameter says what it belongs to
            for name, marks in _marks(part).items():
                found[name] = [mark for mark in marks if isinstance(mark, BelongsTo) and mark.key in known]
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
        found: list[Callable[..., Any]] = [self.worker_loop]
        if self._steps_locally:
            found.append(optimizer)
        if self.consistency is not None:
            found += [self.consistency, self._server_optimizer]
            found += [self.correction] if self.correction else []
            found.append(ParameterServer)
        return found

    def own_optimizer(self, values: Mapping[str, Any]) -> Transformation | None:
        """Of a worker that steps by itself; None: it does not."""
        return optimizer(**_chosen(optimizer, self._filled(values))) if self._steps_locally else None

    def moments(self, values: Mapping[str, Any]) -> int | None:
        """Vectors of state of a worker's own optimizer; None: it has none."""
        own = self.own_optimizer(values)
        return None if own is None else own.moments

    def steps_by(self, values: Mapping[str, Any]) -> str:
        """The optimizer of who steps, a worker or the servers; sgd where deltas are only added."""
        return str(self._filled(values).get("optimizer", "sgd"))

    def encodes(self, values: Mapping[str, Any]) -> bool:
        """Whether pushes or answers are encoded."""
        return bool(self.codecs(values))

    def codecs(self, values: Mapping[str, Any]) -> frozenset[str]:
        """The names of those of pushes and answers, without none."""
        filled = self._filled(values)
        return frozenset(filled.get(key, "none") for key in ("codec", "answer_codec")) - {"none"}

    def server_moments(self, values: Mapping[str, Any]) -> int:
        """Vectors of state of the servers' optimizer."""
        if self.consistency is None:
            return 0
        made = self._server_optimizer
        return int(made(**_chosen(made, self._filled(values))).moments)

    @property
    def _steps_locally(self) -> bool:
        return "optimizer" in _arguments(self.worker_loop)

    @property
    def _server_optimizer(self) -> Callable[..., Any]:
        assert self.consistency is not None
        usual = optimizer if self.pushes == "gradients" else server_optimizer
        return self.consistency.optimizer or usual

    def program(self, kind: str, values: Mapping[str, Any]) -> Program:
        """The program of a worker, server or relay, with the parameters' values filled in."""
        known = self.parameters
        own = self._filled({name: value for name, value in values.items() if name in known})
        if kind == "worker":
            return lambda node: self._work(node, own)
        if kind == "server":
            return lambda node: self._serve(node, own)
        assert self.relay is not None, "this strategy has no relays"
        relay = self.relay
        return lambda node: relay(node, **_chosen(relay, own))

    def _filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values, and where one is not given this strategy's own."""
        usual = self.defaults.get("optimizer")
        return dict(values) if values.get("optimizer", usual) != usual else {**self.defaults, **values}

    def _work(self, node: Node, values: Mapping[str, Any]) -> Coroutine[Any, Any, None]:
        given: list[Any] = [node]
        if self.has_servers:
            given.append(ParameterServer(node, **_chosen(ParameterServer, values)))
        if self._steps_locally:
            given.append(self.own_optimizer(values))
        return self.worker_loop(*given, **_chosen(self.worker_loop, values))

    def _serve(self, node: Node, values: Mapping[str, Any]) -> Coroutine[Any, Any, None]:
        assert self.consistency is not None, "this strategy has no servers"
        return self.consistency(node, self.rule(values), **_chosen(self.consistency, values))

    def rule(self, values: Mapping[str, Any]) -> UpdateRule:
        """What its servers do with what they are pushed."""
        make, own = self._server_optimizer, self._filled(values)
        given = {key: p.default for key, p in self.parameters.items()} | own
        sizes = given["codec_ratio"], given["codec_threshold"]
        return UpdateRule(
            make(**_chosen(make, own)),
            self.correction(**_chosen(self.correction, own)) if self.correction else None,
            Codec(given["codec"], *sizes),
            Codec(given["answer_codec"], *sizes),
        )


FACTORS = ("worker_loop", "consistency", "correction")
"""What a scenario may take from another strategy with a parameter server: keys, and fields of `Strategy`."""


@cache  # every node asks again
def _arguments(part: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(part).parameters


@cache
def _keywords(part: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a part, without their marks."""
    own = [p for p in _arguments(part).values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    bare = {p.name: split(p.annotation)[0] for p in own}
    return {p.name: p if bare[p.name] is p.annotation else p.replace(annotation=bare[p.name]) for p in own}


@cache
def _marks(part: Callable[..., Any]) -> Mapping[str, list[Mark]]:
    return {name: split(_arguments(part)[name].annotation)[1] for name in _keywords(part)}


@cache
def _meaning(part: Callable[..., Any], name: str) -> str:
    said = [mark.meaning for mark in _marks(part)[name] if isinstance(mark, Means)]
    return said[0] if said else described(optional(_keywords(part)[name].annotation)[0])


def _chosen(part: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in _keywords(part) if name in values}
