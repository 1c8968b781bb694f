"""The strategy language: what a node of a training job can do.

A strategy is plain `async def` over an injected `Node`. The simulator's node waits in virtual time, the
executor's blocks in real time; a strategy cannot tell which, and must not try to.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol, Self, TypeVar

T = TypeVar("T")


class Vector(Protocol):
    """A flat vector of parameters, a gradient, or a part of one: shape (n,).

    A torch tensor when numbers matter, a mere size in a sizes-only simulation. Never changed in place:
    a message may still be holding it.
    """

    @property
    def nbytes(self) -> int:
        """Size on the wire, bytes."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Self: ...
    def __add__(self, other: Any, /) -> Self: ...
    def __radd__(self, other: Any, /) -> Self: ...
    def __sub__(self, other: Any, /) -> Self: ...
    def __mul__(self, other: Any, /) -> Self: ...
    def __rmul__(self, other: Any, /) -> Self: ...
    def __truediv__(self, other: Any, /) -> Self: ...
    def __neg__(self) -> Self: ...


class Message(NamedTuple):
    """What one node sends to another: a kind, perhaps a body, and a small header."""

    kind: str
    sender: int  # rank
    body: Vector | None = None
    version: int = 0  # the version of the parameters in the body, or that the body was computed from
    batches: int = 0  # mini-batches whose gradients are in the body


class Contribution(NamedTuple):
    """One worker's part in an update."""

    worker: int  # rank
    staleness: int  # version just before the update minus the version the gradient was computed from
    batches: int  # mini-batches whose gradients it holds


class Node(Protocol):
    """One process of the job: a worker, or a server that holds one shard of the parameters.

    Ranks count the workers first, then the servers.
    """

    rank: int
    index: int  # among the nodes of its role: worker 0, 1, …; server (and shard) 0, 1, …
    workers: Sequence[int]  # ranks
    hosts: Sequence[int]  # of each worker, by index: a number for the machine it is on
    servers: Sequence[int]  # ranks; empty when the strategy has none
    rng: Random  # this node's own seeded stream
    step: int  # mini-batches whose gradient this node has computed

    @property
    def now(self) -> float:
        """Seconds since the job started, on the engine's clock."""
        ...

    def initial_parameters(self) -> Vector:
        """All parameters before training, shape (n,): the same on every node."""
        ...

    def concatenate(self, parts: Sequence[Vector]) -> Vector:
        """Join vectors end to end."""
        ...

    def send(
        self, to: int, kind: str, body: Vector | None = None, *, version: int = 0, batches: int = 0
    ) -> Awaitable[None]:
        """Send a message to rank `to`; it is on its way even if nobody awaits what this returns.

        Awaiting it waits until the last byte has left this node. Messages from one node to another
        arrive in the order they were sent.
        """
        ...

    def receive(self, kind: str | None = None, sender: int | None = None) -> Awaitable[Message]:
        """Wait for the oldest message that matches; None matches any."""
        ...

    def next_batch_available(self) -> Awaitable[bool]:
        """Whether there is another mini-batch for this worker; `gradient` takes it."""
        ...

    def gradient(self, parameters: Vector) -> Awaitable[Vector]:
        """Compute the mean gradient of the loss over this worker's current mini-batch, shape (n,)."""
        ...

    def apply(self, function: Callable[[], T], nbytes: int) -> Awaitable[T]:
        """Do real work that touches `nbytes` bytes of memory; the simulator lets it cost nothing yet."""
        ...

    def collective(self, program: "Collective", vector: Vector) -> Awaitable[Vector]:
        """Run a collective among all workers; every worker must call it with the same program.

        An engine may know a shorter way to the same result.
        """
        ...

    def all_reduce(self, vector: Vector) -> Awaitable[Vector]:
        """Sum `vector` over all workers with the engine's native collective; every worker must call it."""
        ...

    def updated(
        self, version: int, parameters: Vector, contributions: Sequence[Contribution]
    ) -> Awaitable[None]:
        """Tell the engine that this node's parameters have become `parameters`, at `version`.

        The engine records it, and ends this node's part here when the run has reached its stop.
        """
        ...

    def spawn(self, program: Coroutine[Any, Any, None]) -> None:
        """Run a second activity on this node, beside the one that calls this."""
        ...

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Do nothing for a while."""
        ...


Collective = Callable[[Node, Vector], Coroutine[Any, Any, Vector]]
"""What all workers run together: from a vector of each to the same result at all of them."""
