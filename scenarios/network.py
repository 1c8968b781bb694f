"""The network between the hosts: `cluster.network`. Bandwidths are bytes/s, sizes bytes, times seconds.

Hosts are numbered from 0: the workers' first, then those of dedicated servers. Bandwidths and bursts count
bytes on the wire; `goodput` of them are data.
"""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from lockstep.scenarios.files import beside, rows
from lockstep.scenarios.section import FACTOR, Factor, Section, is_factor
from lockstep.scenarios.topology import Racks, Star, Topology
from lockstep.scenarios.units import (
    TIME_FROM_0,
    Bandwidth,
    Duration,
    PositiveDuration,
    PositiveSize,
    Size,
    fail,
)

_Host = Annotated[int, Field(ge=0)]


class Burst(Section):
    """A token bucket: after idle time a card sends at `line_rate` until its tokens are used up.

    The bucket holds `size` and fills at the card's bandwidth. Frames go in trains of at most `train` bytes of
    data: a whole one as soon as there are tokens, which are owed afterwards. Of a message larger than `first`
    so many go in trains of their own, ahead of the rest: what its process hands over at once.
    """

    size: PositiveSize
    line_rate: Bandwidth
    train: Size = 0.0
    first: Size = 0.0


class Card(Section):
    """The network cards of some hosts: `bandwidth` instead of that of the others."""

    hosts: tuple[_Host, ...] = Field(
        strict=False, min_length=1, description="the hosts' numbers, such as 'hosts: [3, 4]'"
    )
    bandwidth: Bandwidth


class IntraHost(Section):
    """One link inside each host (PCIe, NVLink, loopback), which all messages between its processes share."""

    bandwidth: Bandwidth | None = None
    latency: Duration = 0.0


class Change(Section):
    """From the instant `at` on, a link has `factor` times its bandwidth."""

    at: Duration
    factor: Factor = Field(description="what the bandwidth is multiplied by, such as 'factor: 0.3'")


class Varying(Section):
    """Links whose bandwidth changes in time by a factor, which is 1 before the first instant.

    `links` is a pattern of their names, in which * stands for anything. The changes are a `schedule`, or the
    lines "seconds, factor" of `file`; with `repeat` they begin anew every so many seconds.
    """

    links: str = Field(min_length=1, description="""a pattern of links' names, such as "worker 3's *\"""")
    schedule: tuple[Change, ...] | None = Field(None, strict=False, min_length=1)
    file: str | None = None
    repeat: PositiveDuration | None = None

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        """The instants (s, the first one 0) and the factors from then on; reads the file, if there is one."""
        given = tuple((change.at, change.factor) for change in self.schedule or ())
        steps = given if self.file is None else _read(Path(self.file))
        return steps if steps[0][0] == 0 else ((0.0, 1.0), *steps)

    @field_validator("file")
    @classmethod
    def _absolute(cls, file: str | None, info: ValidationInfo) -> str | None:
        if file is None:
            return None
        path = beside(file, info)
        for (earlier, _), (later, _) in pairwise(_read(path)):
            if later <= earlier:
                fail(f"the file's instants must rise, but {later!r} s follows {earlier!r} s")
        return str(path)

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if (self.schedule is None) == (self.file is None):
            fail("give exactly one of schedule ([{at: 0 s, factor: 1}, {at: 10 s, factor: 0.3}]) and file")
        for index, (earlier, later) in enumerate(pairwise(self.schedule or ()), 1):
            if later.at <= earlier.at:
                fail(f"must be later than {earlier.at!r} s, not {later.at!r} s", "schedule", index, "at")
        last = self.steps[-1][0]
        if self.repeat is not None and self.repeat <= last:
            fail(f"must be longer than the last instant ({last!r} s), not {self.repeat!r} s", "repeat")
        return self


def _change(line: str) -> tuple[float, float] | None:
    at, factor = map(float, line.split(","))
    return (at, factor) if TIME_FROM_0.admits(at) and is_factor(factor) else None


def _read(path: Path) -> tuple[tuple[float, float], ...]:
    form = f"seconds, a comma and {FACTOR}"
    return rows(path, _change, "seconds and factors", form)


class Background(Section):
    """Traffic of others: `flows` flows from one host to another, each of at most `bandwidth`, or greedy.

    With `on` and `off` each flow comes and goes, for exponential times with these means.
    """

    source: int = Field(alias="from", ge=0, description="a host's number, such as 'from: 0'")
    to: int = Field(ge=0, description="a host's number, such as 'to: 5'")
    bandwidth: Bandwidth | None = None
    flows: int = Field(1, ge=1, le=10_000)
    on: PositiveDuration | None = None
    off: PositiveDuration | None = None

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.source == self.to:
            fail(f"must be another host than {self.source}, where it comes from", "to")
        if (self.on is None) != (self.off is None):
            missing = "on" if self.on is None else "off"
            fail(f"on and off go together; give {missing} too, such as '{missing}: 3 s'", missing)
        return self


class Processing(Section):
    """What a message takes of the cores at each of its ends, besides overheads: core-seconds, also a byte.

    `overheads`: what both overheads of a message take, if less than they last: a process that had slept is
    slow to begin. `update`: the same of `cluster.apply_overhead`.
    An end whose process had no message for t s takes t ÷ (t + `cold_after`) of `cold` more: others had its
    core and caches meanwhile.
    A message of more than `large` bytes takes `per_large_message` more: it comes in parts.
    `cores`: of the one machine that stands for all hosts, as a testbed's does, or as many as would do its
    work if none were ever idle while work waits at another, such as 1.9 of 2. Without it messages share each
    host's `cores_per_host` with all that is computed there. That machine's gradients are only waited for, or
    also take `gradient` of its cores: they are over when both their time and that work is. Updates and codecs
    take some of that machine's if `update` is given.
    """

    overheads: PositiveDuration | None = Field(
        None, description="core time of both of a message's, such as '80 us'"
    )
    update: PositiveDuration | None = Field(None, description="core time of apply_overhead, such as '10 us'")
    per_message: Duration = Field(0.0, description="core time at each end, such as '50 us'")
    per_byte: Duration = Field(0.0, description="core time at each end, such as '5 ns'")
    per_large_message: Duration = Field(0.0, description="more core time at each end, such as '20 us'")
    large: PositiveSize | None = Field(None, description="a message of more takes that, such as '6 kB'")
    cold: Duration = Field(0.0, description="more core time after a long pause, such as '400 us'")
    cold_after: PositiveDuration = Field(0.01, description="pause after which it is half of that")
    cores: Annotated[float, Field(ge=1, le=1e6)] | None = Field(None, description="such as 2, or 1.9")
    gradient: Duration = Field(
        0.0, description="core time that a gradient really takes there, such as '4 ms'"
    )

    def at_an_end(self, nbytes: float) -> float:
        """Core-seconds that a message of so many bytes takes at an end, besides overheads and `cold`."""
        more = self.per_large_message if self.large is not None and nbytes > self.large else 0.0
        return self.per_message + self.per_byte * nbytes + more

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.gradient and self.cores is None:
            fail("needs cores: those of the one machine that stands for all hosts", "gradient")
        if self.per_large_message and self.large is None:
            fail("needs large: the size that such a message exceeds", "per_large_message")
        return self


class Jitter(Section):
    """How much the latencies of messages between hosts differ: their standard deviation.

    They are a shifted exponential, and their mean stays. A deviation above the latency counts as the latency.
    Another `draw` is another course of the same seed.
    """

    deviation: Duration
    draw: int = Field(0, ge=0, le=2**32 - 1, description="which of the possible draws, such as 'draw: 1'")


class Tcp(Section):
    """Connections between hosts have windows, and a card sends what it was given first.

    At most `window` bytes of a connection are not acknowledged. It begins with `initial_window`, and its
    window grows by what is acknowledged. For each `idle` and round trip in which it sends nothing it halves.
    """

    window: PositiveSize = 3 * 2.0**20
    initial_window: PositiveSize = 14480.0
    idle: PositiveDuration = Field(0.2, description="with a round trip: the pause that halves a window")

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.initial_window > self.window:
            fail(
                f"must be at most window ({self.window!r} B), not {self.initial_window!r} B", "initial_window"
            )
        return self


class Network(Section):
    """`bandwidth` (bytes/s; None: unlimited) is per direction per NIC, `latency` (s) one way per message.

    Every message takes its sender `message_overhead` and its receiver `receive_overhead` (s), one after
    another. `goodput` is the share of bandwidth left for data.
    """

    bandwidth: Bandwidth | None = None
    latency: Duration = 0.0
    jitter: Jitter | None = None
    message_overhead: Duration = Field(0.0, description="sender's time per message, such as '5 us'")
    receive_overhead: Duration = Field(0.0, description="receiver's time per message, such as '5 us'")
    goodput: float = Field(1.0, ge=0.01, le=1, description="share of bandwidth left for data, such as 0.95")
    duplex: Literal["full", "half"] = Field("full", description="half: up and down share the NIC's bandwidth")
    burst: Burst | None = None
    processing: Processing | None = None
    queue: Size = Field(0.0, description="of each message, what may wait in switches, such as '64 KiB'")
    tcp: Tcp | None = None
    server_bandwidth: Bandwidth | None = Field(
        None, description="of the hosts that servers and relays have of their own"
    )
    cards: tuple[Card, ...] = Field((), strict=False)
    intra_host: IntraHost | None = None
    topology: Topology = Star(kind="star")
    varying: tuple[Varying, ...] = Field((), strict=False)
    background: tuple[Background, ...] = Field((), strict=False)

    def cards_of(self, workers: int, others: int) -> list[float | None]:
        """The bandwidth (bytes/s; None: unlimited) of the cards of the workers' hosts, then of the others."""
        found = [self.bandwidth] * workers + [self.server_bandwidth or self.bandwidth] * others
        for card in self.cards:
            for host in card.hosts:
                found[host] = card.bandwidth
        return found

    @property
    def given(self) -> dict[str, float]:
        """Every bandwidth that is given, or follows from those that are (bytes/s of data), by its key."""
        shape, inner = self.topology, self.intra_host
        cards = {f"cards[{index}].bandwidth": card.bandwidth for index, card in enumerate(self.cards)}
        rates = {"bandwidth": self.bandwidth, "server_bandwidth": self.server_bandwidth, **cards}
        rates |= {f"topology.{key}": rate for key, rate in shape.given(self.bandwidth).items()}
        found = {key: rate * self.goodput for key, rate in rates.items() if rate is not None}
        return found if inner is None or inner.bandwidth is None else {
            **found, "intra_host.bandwidth": inner.bandwidth
        }  # fmt: skip

    @model_validator(mode="after")
    def _agrees(self, info: ValidationInfo) -> Self:
        shape, burst = self.topology, self.burst
        if (info.context or {}).get("profile"):  # it is only a part of a network
            return self
        if isinstance(shape, Racks) and shape.oversubscription is not None and self.bandwidth is None:
            needs = "needs the cards' bandwidth; give cluster.network.bandwidth, or uplink instead"
            fail(needs, "topology", "oversubscription")
        if burst is not None and self.bandwidth is None:
            fail("needs the cards' bandwidth; give cluster.network.bandwidth", "burst")
        if self.tcp is not None:
            if self.bandwidth is None:
                fail("needs the cards' bandwidth; give cluster.network.bandwidth", "tcp")
            for key in ("queue", "burst"):
                if getattr(self, key):
                    fail(f"does not go with tcp, whose window says what is under way; leave {key} out", key)
        rates = {"bandwidth": self.bandwidth, "server_bandwidth": self.server_bandwidth}
        rates |= {f"cards[{index}].bandwidth": card.bandwidth for index, card in enumerate(self.cards)}
        for key, rate in rates.items():
            if burst is not None and rate is not None and burst.line_rate < rate:
                problem = f"must be at least {key} ({rate!r} B/s), not {burst.line_rate!r} B/s"
                fail(problem, "burst", "line_rate")
        return self
