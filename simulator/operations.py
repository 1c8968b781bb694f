"""What a node does, as it is written down (trace.py) and done again (packed.py, traced_kernel.py)."""

from collections.abc import Sequence
from typing import NamedTuple

from lockstep.strategies.node import Contribution


class Send(NamedTuple):
    """A message, on its way from now on."""

    to: int
    kind: str
    nbytes: int


class Sent(NamedTuple):
    """Wait until the last byte of a message has left: of the last one, or of one so many before."""

    before: int


class Receive(NamedTuple):
    """Wait for the next message of a node."""

    sender: int


class ReceiveAny(NamedTuple):
    """Wait for the first message of anybody of whom there was none yet."""


class Reply(NamedTuple):
    """Send something to who has sent that."""

    kind: str
    nbytes: int


class Compute(NamedTuple):
    """Begin a gradient; `parts`: where in the vector the backward pass comes to parts of it."""

    parts: tuple[int, ...]


class Computed(NamedTuple):
    """Wait for one of these parts, by its place in the vector."""

    down_to: int


class Work(NamedTuple):
    """Be busy for some seconds, after all that there was to do before; kind: None: of a server."""

    seconds: float
    kind: str | None


class Update(NamedTuple):
    """The parameters have changed; `ahead`: by how much their version is ahead of the mini-batch's number."""

    ahead: int
    contributions: tuple[Contribution, ...]


Operation = Send | Sent | Receive | ReceiveAny | Reply | Compute | Computed | Work | Update


class Trace(NamedTuple):
    """What a node does before its first mini-batch, in each, and after the last one."""

    before: Sequence[Operation]
    again: Sequence[Operation]
    after: Sequence[Operation]
