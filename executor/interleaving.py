"""What a strategy sees of its node in a real run: the node, with a log of what its words answered.

All that a node does follows from the scenario, its random numbers, and the answers that depend on time: which
message came, whether there was one, who of several activities went on first. With these answers the simulator
repeats the run (simulator/replay.py). A node's activities take turns: one of them is in the strategy's code,
the others wait in words, as in the simulator. So the order of the answers is all there is to know; but an
activity that reads `step` or `loss` while another computes reads what depends on the moment.
"""

from collections.abc import Awaitable, Coroutine, Sequence
from math import nan
from struct import Struct
from typing import Any

import numpy as np

from lockstep.executor.turns import Turns
from lockstep.job.events import Retired
from lockstep.job.node import Node
from lockstep.job.through import Through
from lockstep.strategies import Collective, Contribution, Message, Vector

_PACK = Struct("=ihhiiid").pack
_FIELDS = ("activity", "word", "kind", "peer", "number", "version", "answer")
_TYPE = np.dtype(list(zip(_FIELDS, ("i4", "i2", "i2", "i4", "i4", "i4", "f8"), strict=True)))


class Interleaving:
    """One node's log, packed: 28 bytes an entry."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.taken = 0  # bytes that have been drained
        self._packed = bytearray()
        self._names: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        """What all entries so far take."""
        return self.taken + len(self._packed)

    def note(
        self,
        activity: int,
        word: str,
        kind: str = "",
        peer: int = -1,
        number: int = -1,
        version: int = -1,
        answer: float = nan,
    ) -> None:
        """Add an entry."""
        code = self._names.setdefault
        count = len(self._names)
        self._packed += _PACK(
            activity, code(word, count), code(kind, len(self._names)), peer, number, version, answer
        )

    def drain(self) -> tuple[np.ndarray, list[str]]:
        """Take the entries out, another thread adding some: rows, and the names of words and kinds."""
        count = len(self._packed)
        rows = np.frombuffer(bytes(self._packed[:count]), _TYPE)
        del self._packed[:count]
        self.taken += count
        return rows, list(self._names)


class LoggedNode(Through):
    """A real node as its strategy sees it: what depends on time is logged when it has been answered."""

    def __init__(self, node: Node, turns: Turns, device: str) -> None:
        super().__init__(node)
        self.log = Interleaving(node.rank)
        self._turns, self._device = turns, device

    async def run(self, program: Coroutine[Any, Any, None]) -> None:
        """Run a program of the node."""
        self._note("begin", self._device)
        await program

    def _note(
        self,
        word: str,
        kind: str = "",
        peer: int = -1,
        number: int = -1,
        version: int = -1,
        answer: float = nan,
    ) -> None:
        self.log.note(self._turns.activity, word, kind, peer, number, version, answer)

    @property
    def now(self) -> float:
        now = self.node.now
        self._note("now", answer=now)
        return now

    def receive(self, kind: str | None = None, sender: int | None = None) -> Awaitable[Message]:
        return self._received(self.node.receive(kind, sender))

    async def _received(self, receiving: Awaitable[Message]) -> Message:
        found: Any = await receiving
        self._note("receive", found.kind, found.sender, found.number, found.version)
        return found  # type: ignore[no-any-return]

    def arrived(self, kind: str | None = None) -> bool:
        found = self.node.arrived(kind)
        self._note("arrived", kind or "", answer=found)
        return found

    async def next_batch_available(self) -> bool:
        found = await self.node.next_batch_available()
        self._note("next_batch_available", answer=found)
        return found

    async def gradient(self, parameters: Vector) -> Vector:
        gradient = await self.node.gradient(parameters)
        self._note("gradient")
        return gradient

    async def gradient_unless(self, parameters: Vector, kind: str) -> Vector | None:
        step = self.node.step
        gradient = await self.node.gradient_unless(parameters, kind)
        self._note("gradient_unless", kind, number=self.node.step - step, answer=gradient is not None)
        return gradient

    def collective(self, program: Collective, vector: Vector) -> Awaitable[Vector]:
        return program(self, vector)

    async def all_reduce(self, vector: Vector) -> Vector:
        total = await self.node.all_reduce(vector)
        self._note("all_reduce")
        return total

    async def updated(self, version: int, parameters: Vector, contributions: Sequence[Contribution]) -> None:
        try:
            await self.node.updated(version, parameters, contributions)
        except Retired:
            self._note("updated", version=version, answer=True)
            raise
        self._note("updated", version=version, answer=False)

    def spawn(self, program: Coroutine[Any, Any, None]) -> None:
        self.node.spawn(self.run(program))

    async def sleep(self, seconds: float) -> None:
        await self.node.sleep(seconds)
        self._note("sleep")
