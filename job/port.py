"""What a node stands on: the few things that take time, or that only an engine can do.

No member is an operation of the strategy language; what these mean is `Node`'s to say (job/node.py). Two
engines have ports: virtual time (simulator/port.py) and real time (executor/port.py).

A node runs in turns: one of its activities goes on until it awaits something, then messages are taken in and
events happen, then another goes on. What it does follows from the order of these and from a few answers: the
executor records them (executor/interleaving.py), a replay gives them again (simulator/replayed_port.py).
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from lockstep.job.events import Event
from lockstep.strategies.node import Collective, Group, Message, Vector
from lockstep.strategies.orders import Kind


class PassOf(NamedTuple):
    """A pass of one micro-batch of a mini-batch through a piece of the model (strategies/orders.py)."""

    kind: Kind
    micro: int
    chunk: int
    given: Any  # what comes to it from the piece before, or behind; None: nothing does
    segment: int = 0  # of the piece, in the order of its passes


class Cost(NamedTuple):
    """Of an update, an addition or a codec: `seconds`, or, for 0, as long as it takes.

    share: begins it on cores that others share, after this node's earlier work, and returns what happens when
    it begins and when it is done. None: nobody shares them.
    """

    seconds: float
    share: Callable[[], tuple[Event, Event]] | None = None


@dataclass(slots=True)
class Work:
    """A gradient that the device computes, or one pass of it."""

    start: float  # when it was begun, in s on the port's clock
    end: float | None  # when it will be computed; None: not known beforehand
    done: Event
    parts: Sequence[Event]  # when it has come down to each of the elements that were asked for
    gradient: Callable[[], tuple[Vector, float]]  # and the loss; of each part, once that has happened
    give_up: Callable[[], None]
    kept: Callable[[], int] = int  # the most bytes of the micro-batch that a device had during a pass


class Arrival(Protocol):
    """A message that has arrived, and when it was on its way: in s on the port's clock."""

    @property
    def message(self) -> Message: ...
    @property
    def start(self) -> float: ...
    @property
    def left_at(self) -> float:
        """When its last byte had left the sender; nan if unknown."""
        ...

    @property
    def nbytes(self) -> int: ...


class Clock(Protocol):
    """One for all nodes of a process."""

    @property
    def now(self) -> float:
        """Seconds since the job started: for records and durations, on which nothing else depends."""
        ...


class Port(Protocol):
    """One node's."""

    @property
    def clock(self) -> Clock: ...

    def tell_time(self) -> float:
        """Seconds since the job started, for a program: what it does may depend on it."""
        ...

    def post(self, to: int, message: Message) -> Awaitable[None]:
        """Send a message to a rank; awaiting this waits until its last byte has left."""
        ...

    def wait(self, seconds: float, working: bool = False) -> Event:
        """What happens after a while; `working`: for so long the node does work that `cost` has charged."""
        ...

    def compute(
        self, parameters: Any, step: int, down_to: Sequence[int] = (), of: PassOf | None = None
    ) -> Work:
        """Let the device compute the gradient of mini-batch `step`, or one pass of it.

        The backward pass goes from the last element to the first; `down_to`: elements at which to say so.
        What a pass comes to takes the place of the gradient: an activation, an error, or the gradient of a
        piece.
        """
        ...

    def cost(self, nbytes: int, codec: str = "", decoding: bool = False) -> Cost:
        """What work on so many bytes is charged, perhaps a codec's."""
        ...

    def collective(
        self, program: Collective, vector: Vector, among: Group | None = None, beside: int = 0
    ) -> Awaitable[Vector] | None:
        """A shorter way to what a collective of all, or of a group, comes to; None if there is none.

        beside: its part (member.py), if the node goes on meanwhile, and may begin others.
        """
        ...

    def all_reduce(self, vector: Vector) -> Awaitable[tuple[Vector, int]]:
        """The engine's own sum over all workers; and the bytes that it sent which are no messages."""
        ...

    def show(self, version: int, part: Vector) -> None:
        """Let a snapshot be seen by what evaluates the run while it goes on."""
        ...

    def start(self, program: Coroutine[Any, Any, None]) -> None:
        """Run a program of the node beside those it has."""
        ...
