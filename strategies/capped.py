"""Pushes whose bytes are capped by a bandwidth: the largest elements go first, and the others wait."""

from typing import Annotated, Any, NamedTuple

from lockstep.strategies.bounds import Bound, Count
from lockstep.strategies.codecs import INDEX, Codec, Encoder
from lockstep.strategies.marks import BelongsTo
from lockstep.strategies.node import Node, Vector

BytesPerSecond = Annotated[float, Bound(gt=0), BelongsTo("codec", ("capped",))]
Flush = Annotated[Count | None, BelongsTo("codec", ("capped",))]


class Cap(NamedTuple):
    """What a worker may push in a second, bytes; after `flush` pushes all that is left goes."""

    bytes_per_s: float
    flush: int | None = None


class CappedEncoder(Encoder):
    """One sender's stream of vectors, of each as many elements as fit into the time since the one before.

    Managed communication: Wei et al. 2015, "Managed communication and consistency for fast data-parallel
    iterative analytics" (the abstract read), and its code (bosen, `ssp_aggr_bg_worker.cpp`): a message of the
    most important updates, then none until it would have left at that bandwidth; what is older than some
    clocks goes in any case. Theirs are rows, ordered by magnitude relative to the parameter, and are sent
    between clocks too. Here elements go by their magnitude, with a push: one at least, and all of them, as
    they are, where their places would take more.
    """

    def __init__(self, node: Node, cap: Cap, share: float, error_feedback: bool = True) -> None:
        """share: of the bandwidth, that this stream has."""
        super().__init__(node, Codec("none"), error_feedback)
        self.cap, self.share = cap, share
        self.pushes = 0
        self.since = 0.0  # s: there is room for what could have left from then on

    async def encode(self, vector: Vector) -> Vector:
        """The body to send: places and elements, or the whole vector with all that was left."""
        self.codec = self._affordable(vector)
        if self.codec.name != "none":
            return await super().encode(vector)
        whole: Any = vector if self.residual is None else vector + self.residual
        self.residual = None
        return whole  # type: ignore[no-any-return]

    def _affordable(self, vector: Vector) -> Codec:
        now, self.pushes = self.node.now, self.pushes + 1
        room, self.since = self.cap.bytes_per_s * self.share * (now - self.since), now
        one = INDEX + vector.nbytes // max(1, len(vector))
        count = max(1, int(room / one + 1e-6))  # times are rounded
        flushes = self.cap.flush is not None and self.pushes % self.cap.flush == 0
        if flushes or count * one >= vector.nbytes:
            return Codec("none")
        return Codec("top-k", count / len(vector))
