"""What goes wrong on a cluster, and when: `cluster.faults`. All times are seconds of the run's clock.

Each item says who (a worker, a server, the processes of a host or of a rack; with `mtbf` and none of these,
every worker by itself), what happens, and when: once, `at`, or again and again, `mtbf` (mean time between
failures) being the mean time for which it is up. Times that vary are drawn (job/faults.py).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from lockstep.scenarios.compute import Constant, Exponential, LogNormal
from lockstep.scenarios.files import beside, rows
from lockstep.scenarios.section import Count, Section, nearest, one_of
from lockstep.scenarios.units import (
    TIME,
    TIME_FROM_0,
    Bandwidth,
    Duration,
    PositiveDuration,
    fail,
    shown,
)

_MOST = 100_000  # workers
SCOPES = ("worker", "server", "host", "rack")
Rank = Annotated[int, Field(ge=0)]


class Weibull(Section):
    """Weibull with `mean`; a `shape` below 1: who has lived long lives longer, above 1: things wear out."""

    distribution: Literal["weibull"]
    mean: PositiveDuration
    shape: float = Field(ge=0.1, le=100, description="its shape, such as 'shape: 0.7'")

    @property
    def mean_s(self) -> float:
        """The mean in seconds."""
        return self.mean


_Spans = Constant | Exponential | Weibull | LogNormal
_SPANS: dict[str, type[Section]] = {
    get_args(kind.model_fields["distribution"].annotation)[0]: kind for kind in get_args(_Spans)
}


def _span(data: Any) -> type[Section]:
    if not isinstance(data, dict):
        fail(f"must be such as '5 min' or {{distribution: exponential, mean: 5 min}}, not {shown(data)}")
    kind = data.get("distribution")
    if not isinstance(kind, str) or kind not in _SPANS:
        fail(f"{shown(kind)} is not a distribution{nearest(kind, _SPANS)}", "distribution")
    return _SPANS[kind]


def _as(distribution: str, key: str) -> BeforeValidator:
    """A bare duration stands for this distribution, whose `key` it is."""

    def spell_out(data: Any) -> Any:
        if not isinstance(data, str | int | float) or isinstance(data, bool):
            return data
        (TIME if distribution == "exponential" else TIME_FROM_0).parse(data)
        return {"distribution": distribution, key: data}

    return BeforeValidator(spell_out)


Repair = Annotated[_Spans, one_of(_span), _as("constant", "value")]
"""A duration, or a distribution of them: `30 s`, `{distribution: exponential, mean: 5 min}`."""
Life = Annotated[_Spans, one_of(_span), _as("exponential", "mean")]
"""As `Repair`, but a bare duration is the mean of an exponential one."""


class _When(Section):
    """At one instant, or again and again."""

    at: Duration | None = None
    mtbf: Life | None = None
    sign: ClassVar[str] = ""
    """A key of its own."""

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.at is None) == (self.mtbf is None):
            fail("give exactly one of at ('10 s') and mtbf ('2 h'): when it happens")
        if self.mtbf is not None and not self.mtbf.mean_s:
            fail("must be longer than 0 s", "mtbf")
        return self


class _Scoped(_When):
    """At most one of `worker`, `server`, `host` and `rack`, each counted from 0."""

    worker: Rank | None = None
    server: Rank | None = None
    host: Rank | None = None
    rack: Rank | None = None

    @property
    def scope(self) -> tuple[str, int] | None:
        """Whom it befalls, such as ("host", 1); None: every worker by itself."""
        named = [(scope, number) for scope in SCOPES if (number := getattr(self, scope)) is not None]
        return named[0] if named else None

    @model_validator(mode="after")
    def _one_scope(self) -> Self:
        named = [scope for scope in SCOPES if getattr(self, scope) is not None]
        if len(named) > 1:
            fail(f"give at most one of {', '.join(SCOPES)}, not {' and '.join(named)}", named[1])
        if not named and self.mtbf is None:
            fail("missing; give whom it befalls: worker, server, host or rack, such as 'worker: 2'", "worker")
        return self


class Crash(_Scoped):
    """A process dies, or all of a host or rack; it, or who takes its place, is there `back_after`.

    Without `back_after` it does not come back.
    """

    crash: Literal[True] | None = None
    exits_after: Duration = Field(default=0.0, description="for so long it stands still before it is gone")
    back_after: Repair | None = None

    @model_validator(mode="after")
    def _said(self) -> Self:
        if self.at is not None and self.crash is None:
            fail("missing; give what happens: 'crash: true', hang_for or notice", "crash")
        return self


class Hang(_Scoped):
    """A process stands still, and then goes on where it was (SIGSTOP, SIGCONT)."""

    hang_for: Repair


class Preemption(_Scoped):
    """A machine is taken away, of which it was told `notice` before: that failure is noticed the sooner."""

    notice: Duration
    back_after: Repair | None = None


class Link(Section):
    """A host's network card, or one direction of it."""

    host: Rank
    direction: Literal["up", "down", "both"] = "both"


class LinkDown(_When):
    """A host's link carries nothing; what was on its way goes on afterwards, as with TCP."""

    link: Link
    down_for: Repair


class Partition(_When):
    """Hosts of different groups cannot reach each other; those that are in none reach everybody."""

    partition: tuple[Annotated[tuple[Rank, ...], Field(strict=False, min_length=1)], ...] = Field(
        strict=False, min_length=2
    )
    down_for: Repair

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        seen: set[int] = set()
        for index, group in enumerate(self.partition):
            for host in group:
                if host in seen:
                    fail(f"host {host} is listed twice; keep one", "partition", index)
                seen.add(host)
        return self


Ranks = Annotated[tuple[Rank, ...] | None, Field(strict=False, min_length=1)]


class Change(Section):
    """Workers that join, or that leave in good order.

    `add`: so many more than `cluster.workers`. A scenario that has been read has them among its workers, and
    says which they are: they `join`.
    """

    add: Count | None = None
    join: Ranks = None
    remove: Ranks = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.add, self.join, self.remove].count(None) != 2:
            fail("give exactly one of add (how many), join and remove (which, such as [5])")
        return self


class Resize(Section):
    """A planned change of the number of workers."""

    workers: Change
    at: PositiveDuration


def with_those_added(cluster: Any) -> Any:
    """A cluster as it was written, but `{add: 2}` to 4 workers is 6 of them, of which `{join: [4, 5]}`."""
    if not isinstance(cluster, dict) or not isinstance(cluster.get("faults"), list | tuple):
        return cluster
    workers, items = cluster.get("workers"), []
    if not isinstance(workers, int) or isinstance(workers, bool):
        return cluster
    for item in cluster["faults"]:
        match item:
            case {"workers": {"add": int(more), **rest}, **others} if 0 < more <= _MOST and more is not True:
                change = {**rest, "join": [*range(workers, workers + more)]}
                items.append({**others, "workers": change})
                workers += more
            case _:
                items.append(item)
    return {**cluster, "workers": workers, "faults": items}


def presence(items: Sequence[Any]) -> dict[int, tuple[float, float]]:
    """Of the workers that join or leave by plan: from when until when they are there, s."""
    found: dict[int, tuple[float, float]] = {}
    for item in items:
        if isinstance(item, Resize):
            for worker in item.workers.join or ():
                found[worker] = item.at, found.get(worker, (0.0, inf))[1]
            for worker in item.workers.remove or ():
                found[worker] = found.get(worker, (0.0, inf))[0], item.at
    return found


def check_resizes(items: Sequence[Any], workers: int) -> None:
    """Raise a validation error for a worker that joins or leaves twice, and for a job without any."""
    said: set[tuple[str, int]] = set()
    for index, item in enumerate(items):
        if not isinstance(item, Resize):
            continue
        for key in ("join", "remove"):
            for place, worker in enumerate(getattr(item.workers, key) or ()):
                if (key, worker) in said:
                    fail(f"worker {worker} is listed twice; keep one", "faults", index, "workers", key, place)
                said.add((key, worker))
    for worker, (since, until) in presence(items).items():
        if since >= until:
            fail(f"worker {worker} leaves at {until:g} s, before it joins at {since:g} s", "faults")
    changes = [
        (at, change) for span in presence(items).values() for at, change in zip(span, (1, -1), strict=True)
    ]
    there = workers - len(presence(items)) + sum(at == 0 for at, _ in changes)
    for at, change in sorted(change for change in changes if 0 < change[0] < inf):
        there += change
        if not there:
            fail(f"no worker is left at {at:g} s; one must be there", "faults")
    if workers == sum(since > 0 for since, _ in presence(items).values()):
        fail("no worker is there when the run begins; one must be", "faults")


class Trace(Section):
    """Hosts that go and come as the file `trace` says, in lines `seconds, host, down` (or `up`)."""

    trace: str = Field(description="a text file of 'seconds, host, down|up' lines, such as 'trace: spot.csv'")

    @field_validator("trace")
    @classmethod
    def _absolute(cls, file: str, info: ValidationInfo) -> str:
        path = beside(file, info)
        lines = _read(path)
        for (before, *_), (after, *_) in pairwise(lines):
            if after < before:
                fail(f"the file has {after!r} s after {before!r} s; its times must not fall")
        down: set[int] = set()
        for at, host, up in lines:
            if up == (host not in down):
                fail(f"at {at!r} s host {host} goes {'up' if up else 'down'}, but it is already")
            (down.discard if up else down.add)(host)
        return str(path)

    @property
    def changes(self) -> tuple[tuple[float, int, bool], ...]:
        """(at, host, whether it is up from then on), times never falling; read anew at each call."""
        return _read(Path(self.trace))


def _line(line: str) -> tuple[float, int, bool] | None:
    at, host, what = (part.strip() for part in line.split(","))  # more or fewer parts: a ValueError
    known = {"up": True, "down": False}
    if not TIME_FROM_0.admits(float(at)) or int(host) < 0 or what not in known:
        return None
    return float(at), int(host), known[what]


def _read(path: Path) -> tuple[tuple[float, int, bool], ...]:
    return rows(path, _line, "'seconds, host, down|up'", "seconds, a host's number and 'down' or 'up'")


Outage = Crash | Hang | Preemption
_Faults = Crash | Hang | Preemption | LinkDown | Partition | Resize | Trace
_KEYS = sorted({key for kind in get_args(_Faults) for key in kind.model_fields})
_MARKS: dict[str, type[Section]] = {
    **{"hang_for": Hang, "notice": Preemption, "link": LinkDown, "partition": Partition},
    **{"workers": Resize, "trace": Trace, "crash": Crash},
}


def _kind(data: Any) -> type[Section]:
    if not isinstance(data, dict):
        fail(f"must be a mapping such as {{worker: 2, at: 10 s, crash: true}}, not {shown(data)}")
    for key in data:
        if key not in _KEYS:
            fail(f"unknown key{nearest(key, _KEYS)}", key)
    found = [key for key in _MARKS if data.get(key) is not None]
    if len(found) > 1:
        fail(f"give one of {', '.join(_MARKS)}, not {' and '.join(found)}: a fault is one thing", found[1])
    return _MARKS[found[0]] if found else Crash


Fault = Annotated[_Faults, one_of(_kind)]


class Storage(Section):
    """Where checkpoints are: bytes/s at which each process writes and reads its part; not given: no time."""

    write: Bandwidth | None = None
    read: Bandwidth | None = None


class Updates(int):
    """A number of updates."""

    @classmethod
    def parse(cls, data: Any) -> "Updates":
        """From `100 updates`."""
        if isinstance(data, cls):
            return data
        number, _, unit = data.strip().partition(" ") if isinstance(data, str) else ("", "", "")
        if unit.strip() not in ("update", "updates") or not number.replace("_", "").isdecimal():
            fail(f"{shown(data)} is not a number of updates; write it as '100 updates'")
        if not 1 <= int(number) <= 10**12:
            fail(f"{shown(data)} is out of range; must be from 1 to 1_000_000_000_000 updates")
        return cls(number)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        schema = {"type": "string", "pattern": r"^\s*[0-9_]+ +updates?\s*$", "examples": ["100 updates"]}
        return core_schema.no_info_plain_validator_function(
            cls.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(lambda x: f"{int(x)} updates"),
            metadata={"pydantic_js_functions": [lambda _schema, _handler: schema]},
        )


class Checkpoint(Section):
    """Every so many updates, parameters and the optimizer's state are written to `cluster.storage`."""

    every: Updates = Field(description="after how many updates, such as 'every: 100 updates'")


class Recovery(Section):
    """What the job does about faults (docs/faults.md)."""

    checkpoint: Checkpoint | None = None
    on_failure: Literal["stop", "continue", "restart", "wait", "spare"] = "stop"


def named(item: Any) -> Iterator[tuple[Any, ...]]:
    """Whom an item names: what it is ("worker", "server", "host", "rack"), its number, and the keys to it."""
    match item:
        case Crash() | Hang() | Preemption():
            if item.scope is not None:
                yield (*item.scope, item.scope[0])
        case LinkDown():
            yield "host", item.link.host, "link", "host"
        case Partition():
            for place, group in enumerate(item.partition):
                yield from (("host", host, "partition", place) for host in group)
        case Resize():
            for key in ("join", "remove"):
                for place, worker in enumerate(getattr(item.workers, key) or ()):
                    yield "worker", worker, "workers", key, place
        case Trace():
            yield from (("host", host, "trace") for _, host, _ in item.changes)
