"""What a node does beside gradients, one piece after another: updates and codecs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lockstep.job.port import Cost

if TYPE_CHECKING:
    from lockstep.job.node import Node

T = TypeVar("T")


class Busy:
    """Of one node: until when it is busy, and how long it will have been by then; both in s."""

    __slots__ = ("_working", "total_s", "until")

    def __init__(self) -> None:
        self.until = self.total_s = 0.0
        self._working: tuple[float, str] | None = None  # since when, on what, where its end is not known

    async def do(self, node: "Node", function: Callable[[], T], cost: Cost, kind: str) -> T:
        """Work on something: for as long as that costs, or as it takes. What it comes to."""
        seconds, share = cost
        if not seconds and node.at_once:
            return function()
        start = node.clock.now
        if not seconds:
            value = function()
            if node.arithmetic.finish is not None:
                node.arithmetic.finish()
            if node.is_worker and (end := node.clock.now) > start:
                node.recorder.work(node.rank, start, end, kind)
            return value
        if share is not None:
            begun, done = share()
            begun.then(lambda _: self._begin(node, kind))
            done.then(lambda _: self.record(node))
            await done
            return function()
        end = self.charge(node, start, seconds, kind)
        await node.port.wait(end - node.clock.now, working=True)
        return function()

    def charge(self, node: "Node", at: float, seconds: float, kind: str = "apply") -> float:
        """Be busy for so long, from an instant on or after all that there was to do before; until when."""
        start = max(self.until, at)
        self.until = start + seconds
        self.total_s += seconds
        if node.is_worker:
            node.recorder.work(node.rank, start, self.until, kind)
        return self.until

    def _begin(self, node: "Node", kind: str) -> None:
        self._working = node.clock.now, kind

    def record(self, node: "Node", until: float | None = None) -> None:
        """Record what it works on where it is unknown how long that takes, until an instant, or now."""
        if self._working is None:
            return
        (start, kind), self._working = self._working, None
        end = node.clock.now if until is None else until
        self.total_s += end - start
        if node.is_worker:
            node.recorder.work(node.rank, start, end, kind)

    def so_far_s(self, node: "Node") -> float:
        """How long it has been busy by now."""
        now = node.clock.now
        under_way = 0.0 if self._working is None else now - self._working[0]
        return self.total_s + under_way - max(0.0, self.until - now)
