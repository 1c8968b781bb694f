"""What of a node follows from the scenario and from what the node was told: the same in every run.

The base of what stands before a node to record or repeat the rest (executor/interleaving.py,
simulator/replay.py). All members are written out, so that a type checker misses one that is new.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from lockstep.job.node import Node


class Through:
    """See `strategies.Node` for what each member means."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.rank, self.index, self.shard = node.rank, node.index, node.shard
        self.workers: Sequence[int] = node.workers
        self.parents: Sequence[int] = node.parents
        self.children: Sequence[int] = node.children
        self.shards: Sequence[slice] = node.shards
        self.hosts: Sequence[int] = node.hosts
        self.rng: Random = node.rng
        self.epoch, self.budget = node.epoch, node.budget
        self.memory: Any = node.memory
        self.initial_parameters = node.initial_parameters
        self.concatenate, self.add_parts, self.vector = node.concatenate, node.add_parts, node.vector
        self.encode, self.decode, self.apply = node.encode, node.decode, node.apply
        self.send, self.dropped = node.send, node.dropped
        self.backward = node.backward

    @property
    def step(self) -> int:
        return self.node.step

    @property
    def loss(self) -> float:
        return self.node.loss
