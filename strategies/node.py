"""The strategy language: what a node of a training job can do.

A strategy is plain `async def` over an injected `Node`. The simulator's node waits in virtual time, the
executor's blocks in real time; a strategy cannot tell which, and must not try to.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from lockstep.strategies.codecs import Codec
from lockstep.strategies.exchanges import Exchanges
from lockstep.strategies.parts import Part

if TYPE_CHECKING:
    from random import Random

    from lockstep.strategies.outer import Matrix

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
    def __rtruediv__(self, other: Any, /) -> Self: ...
    def __pow__(self, exponent: float, /) -> Self: ...
    def __neg__(self) -> Self: ...
    def add(self, other: Self, /, *, alpha: float) -> Self:
        """`self + alpha * other`, in one pass over the memory and rounded once."""
        ...

    def norm(self) -> Any:
        """The Euclidean one, as what `float` takes; nan where nothing is learned."""
        ...

    def tolist(self) -> list[float]:
        """The elements; nan for each where nothing is learned."""
        ...


class Source(NamedTuple):
    """One worker's part in the body of a push."""

    worker: int  # rank
    version: int  # the version of the parameters that it was computed from
    batches: int  # mini-batches whose gradients it holds


@dataclass(slots=True, eq=False)
class Message:
    """What one node sends to another: a kind, perhaps a body, and a small header."""

    kind: str
    sender: int  # rank
    body: Vector | None = None
    version: int = 0  # the version of the parameters in the body, or that the body was computed from
    batches: int = 0  # mini-batches whose gradients are in the body; of an answer: its clock (bounded)
    # which part of the shard the body is, where shards go in parts; below 0: of a gradient in passes, or of a
    # group's collective, so that no `receive` or `arrived` that asks for any kind takes it
    part: int = 0
    weight: float = 1.0  # of the body in a weighted sum: push-sum's
    sources: tuple[Source, ...] = ()  # of a sum of several pushes, in the order of summing

    @property
    def pushed_by(self) -> tuple[Source, ...]:
        """Whose updates are in the body."""
        return self.sources or (Source(self.sender, self.version, self.batches),)

    def contributions(self, version: int) -> "list[Contribution]":
        """The parts of those who are in the body, in an update of parameters that are at `version`."""
        if not self.sources:
            return [Contribution(self.sender, version - self.version, self.batches)]
        return [Contribution(worker, version - computed, n) for worker, computed, n in self.sources]


@dataclass(slots=True, repr=False)
class Contribution:
    """One worker's part in an update."""

    worker: int  # rank
    staleness: int  # version just before the update minus the version the gradient was computed from
    batches: int  # mini-batches whose gradients it holds


@dataclass(frozen=True, repr=False)
class Group:
    """Some workers that meet in collectives of their own; of two groups that share two workers, the numbers
    differ."""

    ranks: tuple[int, ...]
    hosts: tuple[int, ...]  # of each: a number for the machine it is on
    number: int = 0  # from 0 to 7; 7 are the first workers of hosts (collectives.py)
    breaks: tuple[str, ...] = ()  # by messages of these kinds; its number then is higher than all before

    def broken_by(self, message: Message) -> bool:
        """Whether a message breaks it: not one from a member of an earlier group, which says that it is."""
        number = message.batches
        return message.kind in self.breaks and not message.part and (number >= self.number or not number)


class Broken(Exception):
    """The group of a collective has news, so that this is not to be waited for."""


@dataclass(frozen=True, eq=False)
class Stage:
    """A device's place in its replica of the model."""

    index: int  # of the stage, from 0
    count: int  # of stages
    replica: int
    tensor: int  # its place among the devices that share the stage
    pieces: tuple[slice, ...]  # of the stage's slice of the parameters: those of each piece that it holds
    peers: tuple[int, ...]  # ranks of the replica's stages, in order: those at the same place
    exchanges: tuple[Exchanges, ...]  # of each piece
    group: Group | None = None  # those that have the other parts of its layers, in order

    @property
    def chunks(self) -> int:
        """Pieces of the model that it holds."""
        return len(self.pieces)


class Saved(Protocol):
    """What a node has written to a checkpoint (`Node.save`)."""

    @property
    def version(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def state(self) -> tuple[Any, ...]: ...


class Memory(Protocol):
    """The parameters in memory that all workers share, as on one host: nobody locks it (HOGWILD!).

    Reads and additions go over the components one by one, and those of others go on meanwhile.
    """

    def read(self) -> Awaitable[tuple[Vector, int]]:
        """A copy of all parameters, shape (n,), and how many additions had been completed when it began."""
        ...

    def add(self, update: Vector) -> Awaitable[int]:
        """Add the components of `update` that are not zero; how many additions are now completed.

        A component that another is adding to at the same moment may lose one of the two.
        """
        ...


class Node(Protocol):
    """One process of the job: a worker, a server that holds one shard of the parameters, or a relay.

    Ranks count the workers first, then the servers, then the relays (placement.py).
    """

    rank: int
    index: int  # among the nodes of its role: worker 0, 1, …; server (and shard) 0, 1, …
    workers: Sequence[int]  # ranks
    parents: Sequence[int]  # ranks of those whom this node pushes to: for a worker one a shard; a master
    children: Sequence[int]  # ranks of those who push to this node
    followers: Sequence[int]  # of a server that is master of its shard: ranks of those with copies of that
    shards: Sequence[Part]  # the parts of the parameters that the servers hold, in order
    shard: int  # which of them this node holds, or relays
    hosts: Sequence[int]  # of each worker, by index: a number for the machine it is on
    epoch: int  # mini-batches in one pass over this worker's own samples, rounded up; 1 if they are endless
    budget: int | None  # mini-batches that all workers may make together; None: no bound
    memory: Memory
    matrices: "Sequence[Matrix]"  # weights of fully connected layers; only with the codec `outer`
    stage: Stage  # of a replica that computes in passes; for gradient programs (pipeline.py) alone
    micro_batches: int  # likewise: parts that it computes a mini-batch in
    rejoins: bool  # whether it begins while the others have gone on: after a failure, or as one more
    goes_on: bool  # whether others go on, and begin again, while some fail: who leaves and joins is told

    @property
    def rng(self) -> "Random":
        """This node's own seeded stream."""
        ...

    @property
    def saved(self) -> Saved | None:
        """What to go on from, after a failure; None: from the beginning."""
        ...

    @property
    def step(self) -> int:
        """Mini-batches whose gradient this node has computed, or begun to."""
        ...

    @property
    def loss(self) -> float:
        """Mean over the mini-batch of the last gradient; nan before, and where nothing is learned."""
        ...

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

    def to_send(self, vector: Vector) -> Vector:
        """The same vector, where it can be sent from, to as many as may be, without a copy."""
        ...

    def add(self, vector: Vector, other: Any) -> Vector:
        """`vector` plus another, or a multiple of one, where it can be sent from without a copy."""
        ...

    def add_parts(self, vector: Vector, slices: Sequence[slice], parts: Sequence[Any]) -> Vector:
        """`vector` plus another, or a multiple of one, at each of the slices it is cut into, in order."""
        ...

    def vector(self, values: Sequence[float]) -> Vector:
        """A vector of these values, to be sent or summed along with others."""
        ...

    def encode(self, vector: Vector, codec: Codec) -> Awaitable[Vector]:
        """The vector as a codec sends it: a body whose `nbytes` is its size on the wire (codecs.py).

        This, `decode` and `apply` are work: a node's activities do it one at a time.
        """
        ...

    def decode(self, body: Vector, codec: Codec, length: int) -> Awaitable[Vector]:
        """What is left of a vector of `length` elements that was encoded."""
        ...

    def send(
        self,
        to: int,
        kind: str,
        body: Vector | None = None,
        *,
        version: int = 0,
        batches: int = 0,
        part: int = 0,
        weight: float = 1.0,
        sources: tuple[Source, ...] = (),
    ) -> Awaitable[None]:
        """Send a message to rank `to`; it is on its way even if you do not await what this returns.

        Awaiting it waits until the last byte has left this node. Messages from one node to another
        arrive in the order they were sent.
        """
        ...

    def receive(
        self, kind: str | None = None, sender: int | None = None, part: int | None = None
    ) -> Awaitable[Message]:
        """Wait for the oldest message that matches; None matches any: without a kind and a part, any whose
        part is not below 0.

        It is taken when this is called, or else the first that comes and that no earlier call waits for: of
        two receives the first has the first message, in whichever order they are awaited (as MPI_Irecv).
        """
        ...

    def arrived(self, kind: str | None = None) -> bool:
        """Whether a message of that kind (None: any, see `receive`) is there to be received without waiting.

        In real time: whether it was there when this activity last went on after an await that took time.
        """
        ...

    def next_batch_available(self) -> Awaitable[bool]:
        """Whether there is another mini-batch for this worker; `gradient` takes it."""
        ...

    @property
    def leaves(self) -> bool:
        """Whether it is time for this worker to leave, by plan; there is no mini-batch for it any more."""
        ...

    @property
    def rows(self) -> Sequence[slice]:
        """Of the whole vector, in order: what mini-batches touch some of. Only with the codec `rows`."""
        ...

    def touched(self, step: int) -> Sequence[int]:
        """The numbers of the rows that this worker's mini-batch `step` (from 0) touches, rising.

        Its gradient is zero elsewhere, and does not depend on other rows.
        """
        ...

    def gradient(self, parameters: Vector) -> Awaitable[Vector]:
        """Compute the mean gradient of the loss over this worker's current mini-batch, shape (n,).

        Where the model is split, the parameters are this device's slice of them, and so is the gradient.
        """
        ...

    def gradient_unless(self, parameters: Vector, kind: str) -> Awaitable[Vector | None]:
        """As `gradient`, but give up, with None, when a message of that kind arrives or is there.

        The message is left to be received. Where a replica computes a gradient in passes, it is computed to
        its end all the same, as its stages cannot know of each other's messages.
        """
        ...

    def backward(self, parameters: Vector, parts: Sequence[slice]) -> Sequence[Awaitable[Vector]]:
        """As `gradient`, part by part: an awaitable for each, ready when the backward pass has come to it.

        The pass goes from the end of the vector to its beginning; it takes the share of a gradient's time
        that the scenario gives it (cluster.compute.backward), or what it really takes where compute times are
        measured. In passes, all parts are there at the end of the last. Compute one gradient at a time.
        """
        ...

    def forward(
        self, parameters: Vector, micro: int, inputs: Vector | None, chunk: int = 0, segment: int = 0
    ) -> Awaitable[Vector]:
        """What this stage's piece `chunk` of the model makes of a micro-batch, a flat vector; one pass at a
        time.

        `parameters` are the piece's. `inputs` are what the piece before made of it; None: the samples.
        Behind the last piece it is empty. A piece whose layers are cut has several segments (tensor.py): each
        is given what the exchange after the one before came to.
        """
        ...

    def recompute(
        self, micro: int, inputs: Vector | None, chunk: int = 0, segment: int = 0
    ) -> Awaitable[Vector]:
        """As `forward`, again, for the backward passes; the first segment needs no inputs."""
        ...

    def full_backward(
        self, micro: int, error: Vector | None, chunk: int = 0, segment: int = 0
    ) -> Awaitable[tuple[Vector | None, Vector]]:
        """What `backward_inputs` and `backward_weights` come to, in one pass.

        Segments are counted from the end of the piece; the gradient is whole after the last of them.
        """
        ...

    def backward_inputs(
        self, micro: int, error: Vector | None, chunk: int = 0, segment: int = 0
    ) -> Awaitable[Vector | None]:
        """The gradient of the loss with respect to what `forward` was given; None for samples.

        `error` is that with respect to what it made; None behind the last piece, where the micro-batch's
        loss is this node's `loss` then. With the parameters that `forward` was given.
        """
        ...

    def backward_weights(self, micro: int, chunk: int = 0) -> Awaitable[Vector]:
        """The micro-batch's part of the mini-batch's mean gradient of the piece's parameters, a flat vector.

        After its `backward_inputs`; nothing of the micro-batch is kept from then on.
        """
        ...

    def apply(self, function: Callable[[], T], nbytes: int) -> Awaitable[T]:
        """Do real work that touches `nbytes` bytes of memory; a node's activities do it one at a time."""
        ...

    def collective(
        self, program: "Collective", vector: Vector, among: Group | None = None
    ) -> Awaitable[Vector]:
        """Run a collective among all workers, or a group; each of them must call it with the same program.

        An engine may know a shorter way to the same result. Of a group that breaks, it raises Broken.
        """
        ...

    def begin_gradient(self, parameters: Vector) -> Awaitable[Vector]:
        """As `gradient`, which is computed from now on, beside all else, whenever it is awaited."""
        ...

    def begin_collective(
        self, program: "Collective", vector: Vector, among: Group | None = None
    ) -> Awaitable[Vector]:
        """As `collective`, which is under way from now on, whenever its result is awaited.

        All members begin those of a group in the same order (as NCCL has it). While one is under way, begin
        all others of its group, too.
        """
        ...

    def all_reduce(self, vector: Vector) -> Awaitable[Vector]:
        """Sum `vector` over all workers with the engine's native collective; every worker must call it."""
        ...

    def updated(
        self, version: int, parameters: Vector, contributions: Sequence[Contribution]
    ) -> Awaitable[bool]:
        """Tell the engine that this node's parameters have become `parameters`, at `version`.

        Returns whether they are to be saved now (recovery.checkpoint).

        The engine records it, and ends this node's part here when the run has reached its stop. Of shared
        memory: `version` is what `memory.add` gave, and the engine looks at the memory itself.
        """
        ...

    def save(self, version: int, state: tuple[Any, ...], step: int | None = None) -> Awaitable[None]:
        """Write a checkpoint: vectors and numbers in tuples. It takes the time that the storage takes.

        After a failure it is `saved` here; where all workers hold the same, one writes for all. `step`: the
        mini-batch that a worker goes on with then; None: the one after the last that it has begun.
        """
        ...

    def enter(self, group: Group, version: int, adding: Sequence[int]) -> None:
        """Tell the engine that this node is one of a group that breaks, which goes on from a version.

        adding: whose gradients are in the updates from then on. Messages of earlier groups are forgotten.
        """
        ...

    def go_on_with(self, step: int) -> None:
        """Take that mini-batch next: the others know which ones of this node's are in the parameters."""
        ...

    def dropped(self, push: Message) -> None:
        """Tell the engine that this server has thrown a push away."""
        ...

    def spawn(self, program: Coroutine[Any, Any, None]) -> None:
        """Run a second activity on this node, beside the one that calls this.

        Those of workers go on after all programs have ended, until every message has been dealt with.
        """
        ...

    def beside(self, program: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """As `spawn`, of what `program` makes; what to await for what the activity returns."""
        ...

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Do nothing for a while."""
        ...


Collective = Callable[[Node, Vector], Coroutine[Any, Any, Vector]]
"""What all workers run together: from a vector of each to the same result at all of them."""
