"""A gradient in passes: what a device of a split model, or one that accumulates micro-batches, does for
each."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

from lockstep.job.events import Event
from lockstep.job.plan import Plan
from lockstep.job.port import PassOf
from lockstep.strategies import pipeline
from lockstep.strategies.node import Vector
from lockstep.strategies.orders import ORDERS, Kind

if TYPE_CHECKING:
    from lockstep.job.node import Node


class Passes:
    """Of one node: the order of its passes, the mini-batches that are under way, and what is kept of them."""

    def __init__(self, plan: Plan, rank: int) -> None:
        split, stage = plan.scenario.split, plan.stages[rank]
        self.stage, self.micro_batches = stage, plan.micro_batches
        self.order = tuple(ORDERS[split.order](stage.index, stage.count, plan.micro_batches, stage.chunks))
        self._first = 0  # the mini-batch that micro-batches are counted from
        self._begun: dict[int, tuple[float, int]] = {}  # mini-batch → when, and passes back that are to come
        self._parameters: dict[tuple[int, int], Any] = {}  # by micro-batch and chunk: what forward has used
        self._kept: dict[tuple[int, int], int] = {}  # likewise, bytes
        self._total = 0

    @property
    def under_way(self) -> dict[int, float]:
        """The mini-batches that are, and when each was begun."""
        return {step: start for step, (start, _) in self._begun.items()}

    async def gradient(self, node: "Node", parameters: Vector, step: int) -> Vector:
        """Of a mini-batch; its loss is the node's from then on."""
        self._first = step
        found, node.loss = await pipeline.gradient(node, parameters, self.order)
        return found

    async def forward(
        self, node: "Node", parameters: Vector, micro: int, inputs: Vector | None, chunk: int, segment: int
    ) -> Vector:
        """See `strategies.Node`."""
        if not segment:
            step = self._first + micro // self.micro_batches
            if step == node.step:
                node.begin()
            if step not in self._begun:
                self._begun[step] = node.clock.now, self.micro_batches * self.stage.chunks
                node.noted(step, self._begun[step][0], nan)
            self._parameters[micro, chunk] = parameters
        return await self.do(node, "forward", micro, chunk, inputs, segment)  # type: ignore[no-any-return]

    async def full_backward(
        self, node: "Node", micro: int, error: Vector | None, chunk: int, segment: int
    ) -> Any:
        """See `strategies.Node`."""
        found = await self.do(node, "backward", micro, chunk, error, segment)
        if segment == len(self.stage.exchanges[chunk].backward) - 1:
            self._done(node, micro, chunk)
        return found

    async def backward_weights(self, node: "Node", micro: int, chunk: int) -> Vector:
        """See `strategies.Node`."""
        found: Vector = await self.do(node, "backward-weights", micro, chunk, None)
        self._done(node, micro, chunk)
        return found

    def _done(self, node: "Node", micro: int, chunk: int) -> None:
        """Nothing of a micro-batch is kept any more; if it was the last of its mini-batch, record that."""
        del self._parameters[micro, chunk]
        self._total -= self._kept.pop((micro, chunk))
        step = self._first + micro // self.micro_batches
        start, left = self._begun.pop(step)
        if left > 1:
            self._begun[step] = start, left - 1
        else:
            end = node.clock.now
            node.noted(step, start, end)  # first: what is recorded and not noted would be there twice
            node.recorder.gradient(node.rank, start, end, step)

    async def do(self, node: "Node", kind: Kind, micro: int, chunk: int, given: Any, segment: int = 0) -> Any:
        """A pass through a segment of a piece: what it comes to."""
        later, number = divmod(micro, self.micro_batches)
        step, of = self._first + later, PassOf(kind, number, chunk, given, segment)
        work = node.port.compute(self._parameters[micro, chunk], step, of=of)
        await work.done
        value, loss = work.gradient()
        if loss == loss:  # known: behind the last piece
            node.loss = loss
        kept = work.kept()
        self._total += kept - self._kept.get((micro, chunk), 0)
        self._kept[micro, chunk] = kept
        piece = chunk * self.stage.count + self.stage.index
        node.recorder.passed(node.rank, work.start, node.clock.now, kind, step, piece, number, self._total)
        return value


class Once:
    """A gradient whose parts are awaited one by one: whoever is first computes it, the others wait for
    that."""

    def __init__(self, gradient: Callable[[], Coroutine[Any, Any, Vector]]) -> None:
        """What begins it: no coroutine, as a run may end before anybody awaits a part."""
        self._gradient: Callable[[], Coroutine[Any, Any, Vector]] | None = gradient
        self._done = Event()

    def part(self, part: slice) -> Awaitable[Vector]:
        """A part of it."""
        return _Part(self, part)

    async def compute(self, part: slice) -> Vector:
        """A part of it, once all is there."""
        if self._gradient is not None:
            gradient, self._gradient = self._gradient, None
            self._done.happen(await gradient())
        whole: Vector = await self._done
        return whole[part]


@dataclass(frozen=True)
class _Part(Awaitable[Vector]):
    of: Once
    part: slice

    def __await__(self) -> Generator[Any, Any, Vector]:
        return self.of.compute(self.part).__await__()
