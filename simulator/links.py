"""A link, and a flow over some: what they have carried, at what rate, and what is left."""

from math import inf
from typing import TYPE_CHECKING, Protocol

from lockstep.simulator.bucket import Bucket, Tokens
from lockstep.strategies.resource import ResourceId

if TYPE_CHECKING:
    from lockstep.simulator.compiled import Compiled
    from lockstep.simulator.filling import Filling


class Listener(Protocol):
    """Is told of changes."""

    def told(self) -> None:
        """Rates have changed, or will in this instant."""


class Link:
    """One direction of a network card or of a cable. Capacity in bytes/s.

    `sustained` is the capacity given, `capacity` what the link can do now: more while it has tokens.
    `clock` is how many bytes each flow held back here has carried since it was last idle, at the instant
    `since`; it runs at `rate`. `held` has those flows by the clock's reading when they will be done.
    """

    __slots__ = (
        *("bottleneck", "bound", "capacity", "clock", "count", "entered", "filling", "flows", "held", "id"),
        *("listeners", "offered", "place", "rate", "since", "solved", "solved_count", "sustained"),
        *("sustained_since", "tokens", "used", "wake"),
    )

    def __init__(self, id: ResourceId, capacity: float, bucket: Bucket | None = None) -> None:
        self.id = id
        self.sustained = positive(id, capacity, bucket)
        self.capacity = capacity if bucket is None else bucket.line_rate
        self.tokens = None if bucket is None else Tokens(bucket)
        self.sustained_since = 0.0  # when that became its capacity
        self.offered = 0.0  # bytes that it could have carried before
        self.entered = 0.0  # bytes of all its flows so far; of an endless one, once it is over
        self.flows: dict[Flow, tuple[Link, ...]] = {}  # and their paths
        self.listeners: dict[Listener, None] = {}  # who wants to hear that rates here change
        self.count = 0  # of the flows that it holds back
        self.held: list[tuple[float, int, Flow]] = []
        self.clock = self.rate = self.since = 0.0
        self.bottleneck = True  # of all its flows, and every other link on their paths is unsaturated
        self.bound = inf  # no other link of a held flow gives it less than this
        self.used = 0  # flows so far
        self.wake = inf  # the instant at which it will be looked at again
        self.filling: Filling | Compiled | None = None  # what it was solved by
        self.place = 0  # there
        self.solved = self.solved_count = -1  # `used`, and how many flows there were, when it was

    def alone_s(self, nbytes: float) -> float:
        """Seconds that so many bytes take at least: nobody else is there, and the bucket is full."""
        early = 0.0
        if self.tokens is not None:
            bucket = self.tokens.bucket
            early = bucket.size + bucket.last_train(nbytes)
        return max(0.0, nbytes - early) / self.sustained


def positive(id: ResourceId, capacity: float, bucket: Bucket | None) -> float:
    """The capacity (bytes/s) of that link; raises ValueError for one that no link can have."""
    if not 0 < capacity < inf:
        raise ValueError(f"{id.name}: a capacity is a positive number of bytes/s, not {capacity}")
    if bucket is not None and not (bucket.size > 0 and bucket.line_rate >= capacity):
        raise ValueError(f"{id.name}: a bucket has a size above 0 and a line rate not below the capacity")
    return capacity


class Flow:
    """`size` bytes on their way over `path`, of one or more links; `owner` is the link that holds it back.

    `due` is what the owner's clock reads when the flow is done.
    """

    __slots__ = ("due", "owner", "path", "size")
    endless = False
    listens = False  # wants to know when another link holds it back

    def __init__(self, path: tuple[Link, ...], size: float) -> None:
        self.path = path
        self.size = size
        self.owner: Link | None = None
        self.due = 0.0

    @property
    def altogether(self) -> float:
        """Bytes of the message that it is, or is part of."""
        return self.size

    def done(self) -> object:
        """The last byte has left."""

    def lengthened(self, nbytes: float) -> None:
        """It carries so many bytes more, because another message has come."""

    def moved(self) -> None:
        """Another link holds it back from now on."""

    def left(self, now: float) -> float:
        """Bytes left to carry."""
        owner = self.owner
        if owner is None:  # it has just come
            return self.size
        left = self.due - (owner.clock + owner.rate * (now - owner.since))
        return left if left > 0 or self.endless else 0.0
