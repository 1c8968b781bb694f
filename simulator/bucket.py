"""A token bucket on a link: what Linux's tbf does to a burst, as a fluid.

Tokens fill at the link's capacity up to the bucket's size. While there are some, the link goes at its line
rate and uses up a token for every byte; once they are used up it goes at its capacity. For size s, line rate
L and capacity C, a full bucket lets s·L/(L - C) bytes through at L before it is empty, which takes s/(L - C);
more bytes than that, M, take s/(L - C) + (M - s·L/(L - C))/C = (M - s)/C.
"""

from dataclasses import dataclass

_NOTHING = 1e-12  # of the size, or of the bytes carried: less is rounding, not tokens


@dataclass(frozen=True)
class Bucket:
    """`size` in bytes; `line_rate` in bytes/s, at least the capacity of the link that has the bucket."""

    size: float
    line_rate: float


class Tokens:
    """The tokens in a bucket.

    Between two readings the link must have carried either at most its capacity or at least that, all the
    time: then how many there are follows from the bytes carried, and they are full if ever at the end.
    """

    __slots__ = ("bucket", "carried", "empty_at", "left", "since")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.left = bucket.size
        self.since = self.carried = 0.0  # at the last reading: the instant, and the bytes carried by then
        self.empty_at = float("inf")  # the instant at which there will be none, as things stand

    def read(self, now: float, carried: float, capacity: float) -> float:
        """The tokens left, in bytes, once the link has carried that much."""
        left = self.left + capacity * (now - self.since) - (carried - self.carried)
        if now >= self.empty_at or left <= _NOTHING * max(self.bucket.size, carried):
            left = 0.0
        self.left = min(self.bucket.size, left)
        self.since, self.carried, self.empty_at = now, carried, float("inf")
        return self.left
