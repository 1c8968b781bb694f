"""What a node does beside gradients, one piece after another: updates and codecs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lockstep.job.port import Cost

if TYPE_CHECKING:
    from lockstep.job.node import Node

T = TypeVar("T")


class Busy:
    """Of one node: `until` when it is busy, and the seconds of all work begun so far, `total_s`.

    The node is given each time: its recorder is another one once it has failed.
    """

    __slots__ = ("_at_once", "_is_worker", "_working", "total_s", "until")

    def __init__(self, is_worker: bool, at_once: bool) -> None:
        """at_once: what is not charged takes no time that counts."""
        self._is_worker, self._at_once = is_worker, at_once
        self.until = self.total_s = 0.0
        self._working: tuple[float, str] | None = None  # since when, on what, where its end is not known

    async def do(self, node: "Node", function: Callable[[], T], cost: Cost, kind: str) -> T:
        """Work on something: for as long as that costs, or as it takes. What it comes to."""
        seconds, share = cost
        if not seconds and self._at_once:
            return function()
        start = node.clock.now
        if not seconds:
            value = function()
            if node.arithmetic.finish is not None:
                node.arithmetic.finish()
            if self._is_worker and (end := node.clock.now) > start:
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
        """Add work that takes so long, begun then or when all before it is done; when it is done."""
        start = max(self.until, at)
        self.until = start + seconds
        self.total_s += seconds
        if self._is_worker:
            node.recorder.work(node.rank, start, self.until, kind)
        return self.until

    def _begin(self, node: "Node", kind: str) -> None:
        self._working = node.clock.now, kind

    def record(self, node: "Node", end: float | None = None) -> None:
        """Record what it works on where it is unknown how long that takes; its end is now, or given."""
        if self._working is None:
            return
        (start, kind), self._working = self._working, None
        end = node.clock.now if end is None else end
        self.total_s += end - start
        if self._is_worker:
            node.recorder.work(node.rank, start, end, kind)

    def so_far_s(self, node: "Node") -> float:
        """How long it has been busy by now."""
        now = node.clock.now
        under_way = 0.0 if self._working is None else now - self._working[0]
        return self.total_s + under_way - max(0.0, self.until - now)
