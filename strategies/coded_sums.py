"""Sums over all workers of what a codec sends."""

from collections.abc import Awaitable
from typing import Any

from lockstep.strategies.codecs import Encoder, decode
from lockstep.strategies.collectives import ALGORITHMS
from lockstep.strategies.node import Collective, Group, Node, Vector
from lockstep.strategies.updates import sum_of


class CodedSum:
    """Of one worker's stream of vectors of one length with those of all others.

    What none, fp16 and bf16 send is summed as it is, by an algorithm, each sum rounded anew (so does
    Horovod). What other codecs send cannot be summed: everyone sends it to all others, whatever the
    algorithm, and adds up what is left of all, in full precision and in the order of ranks (so does GRACE: Xu
    et al. 2021).
    """

    def __init__(self, node: Node, encoder: Encoder, algorithm: str) -> None:
        self.node, self.encoder, self.algorithm = node, encoder, algorithm
        self._encoded: Vector | None = None

    async def total(self, vector: Vector) -> Vector:
        """The sum."""
        return await self._program(vector)(self.node, await self.encoder.encode(vector))

    async def again(self, vector: Vector, among: Group) -> Vector:
        """The sum among a group that breaks: a vector is encoded once, and summed until it is `done`."""
        if self._encoded is None:
            self._encoded = await self.encoder.encode(vector)
        return await self.node.collective(self._program(vector), self._encoded, among)

    def done(self) -> None:
        """Forget the vector, whose sum is there."""
        self._encoded = None

    async def begin(self, vector: Vector) -> Awaitable[Vector]:
        """What to await for the sum, which is under way once the vector is encoded."""
        body = await self.encoder.encode(vector)
        return self.node.begin_collective(self._program(vector), body)

    def _program(self, vector: Vector) -> Collective:
        codec, length, nbytes, owner = self.encoder.codec, len(vector), vector.nbytes, self.node

        async def program(node: Node, body: Vector) -> Vector:
            if codec.sums:
                total = await node.collective(ALGORITHMS[self.algorithm], body)
                return await decode(owner, total, codec, length)
            p = len(node.workers)
            for distance in range(1, p):
                node.send(node.workers[(node.index + distance) % p], "encoded", body)
            bodies: list[Any] = [
                body if worker == node.rank else (await node.receive("encoded", worker)).body
                for worker in node.workers
            ]
            decoded = [await decode(owner, each, codec, length) for each in bodies]
            return await owner.apply(lambda: sum_of(decoded), 3 * (p - 1) * nbytes)

        return program
