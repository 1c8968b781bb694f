"""A barrier whose parts come to a version one by one, while a worker begins anew: against what it is told."""

from collections.abc import Awaitable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lockstep.job.events import ready
from lockstep.strategies.consistency import barrier_of_parts
from lockstep.strategies.corrections import UpdateRule
from lockstep.strategies.node import Contribution, Message
from lockstep.strategies.optimizers import server_optimizer
from lockstep.strategies.parameter_server import Shard


class Heard(Exception):
    """There are no more messages."""


class Server(SimpleNamespace):
    """A node of two workers, 0 and 1, whose shard travels in three parts; what it is told is given."""

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__(children=[0, 1], shards=[(slice(0, 3),)], shard=0, saved=None, seen=[], answers=[])
        self.messages, self.concatenate, self.add = [*messages], torch.cat, torch.add
        self.to_send = lambda vector: vector

    def initial_parameters(self) -> torch.Tensor:
        return torch.zeros(3)

    def receive(self) -> Awaitable[Message]:
        if not self.messages:
            raise Heard
        return ready(self.messages.pop(0))

    def apply(self, function: Any, nbytes: int) -> Awaitable[Any]:
        return ready(function())

    def send(self, to: int, kind: str, body: Any, *, version: int, batches: int, part: int) -> None:
        self.answers.append((to, part, version))

    async def updated(self, version: int, parameters: Any, contributions: Sequence[Contribution]) -> bool:
        self.seen.append((version, [each.worker for each in contributions], parameters.tolist()))
        return False


def push(worker: int, part: int, delta: float) -> Message:
    return Message("push", worker, torch.tensor([delta]), batches=1, part=part)


def heard(*messages: Message) -> Server:
    """A server that has heard that; a part moves by the mean of the deltas."""
    node: Any = Server(messages)
    parts = [
        Shard(node, UpdateRule(server_optimizer()), part, place=(slice(part, part + 1),)) for part in range(3)
    ]

    async def pulled(pull: Message) -> None:
        for part in parts:
            await part.answer(pull.sender)

    with pytest.raises(Heard):
        barrier_of_parts(node, parts, pulled).send(None)
    found: Server = node
    return found


FIRST = [push(0, 0, 1.0), push(1, 0, 1.0), push(0, 1, 1.0), push(1, 1, 1.0)]  # of three parts
BACK = [Message("join", 1), Message("pull", 1)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_who_is_back_takes_part_in_what_still_waits(order: Sequence[int]) -> None:
    """And in the next version with a push of its own, in whatever order its parts come."""
    again = [push(1, part, 3.0) for part in order]
    node = heard(*FIRST, *BACK, push(0, 2, 1.0), *again, *(push(w, p, 1.0) for p in range(3) for w in (0, 1)))
    assert node.seen == [(1, [0, 1], [1.0, 1.0, 2.0]), (2, [0, 1], [2.0, 2.0, 3.0])]
    late = [(to, part, version) for to, part, version in node.answers if to == 1]
    assert sorted(late[:2]) == [(1, 0, 1), (1, 1, 1)]  # of what it had pushed before it failed
    assert len(late) == 2 + 3 + 3 + 3


def test_whose_mini_batch_is_in_some_parts_only_does_not_count() -> None:
    node = heard(*FIRST, Message("leave", 1), push(0, 2, 1.0), *(push(0, part, 1.0) for part in range(3)))
    assert node.seen == [(1, [0], [1.0, 1.0, 1.0]), (2, [0], [2.0, 2.0, 2.0])]


def test_a_version_that_all_leave_is_completed_by_who_joins() -> None:
    node = heard(
        *FIRST, Message("leave", 1), Message("leave", 0), *BACK, *(push(1, part, 3.0) for part in (2, 0, 1))
    )
    assert node.seen == [(1, [1], [1.0, 1.0, 3.0])]
    assert node.answers[-3:] == [(1, 2, 1), (1, 0, 1), (1, 1, 1)]
