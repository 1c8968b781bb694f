"""What a node would lose with its process: it says so once, and checkpoints have it."""

from collections.abc import Awaitable, Generator, Sequence
from enum import Enum, auto
from typing import Any, TypeVar

from lockstep.strategies.node import Contribution, Node, Vector

T = TypeVar("T")


class Savers(Enum):
    """Who writes a checkpoint."""

    OWNERS = auto()
    """Those whose parameters together are the model: others have nothing that these have not."""
    WORKERS = auto()
    """All workers: each has something of its own, such as an optimizer's state."""
    NOBODY = auto()


def begin(node: Node, *state: Any) -> tuple[Any, ...]:
    """Version 0 and the state that a run begins with; after a failure, what `updated` has saved of both.

    An optimizer's state is `restored` (optimizers.py): checkpoints know only vectors and numbers, in tuples.
    """
    if node.saved is None:
        return (0, *state)
    return (node.saved.version, *node.saved.state)


async def updated(
    node: Node, version: int, parameters: Vector, contributions: Sequence[Contribution], *state: Any
) -> None:
    """Tell the engine of an update, and save the state if a checkpoint is due."""
    if await node.updated(version, parameters, contributions):
        await node.save(version, state)


class Known(Awaitable[T]):
    """What is there already, in the place of what is waited for: a sum that was under way."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, Any, T]:
        return self.value
        yield  # which makes it a generator
