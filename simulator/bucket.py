"""A token bucket on a link: what Linux's tbf does to a burst, as a fluid.

Tokens fill at the link's capacity up to the bucket's size. While there are some, the link goes at its line
rate and uses up a token for every byte; once they are used up it goes at its capacity. For size s, line rate
L and capacity C, a full bucket lets s·L/(L - C) bytes through at L before it is empty, which takes s/(L - C);
more bytes than that, M, take s/(L - C) + (M - s·L/(L - C))/C = (M - s)/C.

A card that sends trains of frames waits until there are tokens, and then sends a whole train, whose tokens it
owes afterwards. So of a message that is alone the last train, of r bytes, goes at once when the fluid would
begin with it: M bytes take (M - r - s)/C. That is a bucket of s + r, which whoever finds the link idle sees
as large as its own last train makes it; what others' last trains have owed stays owed.
"""

from dataclasses import dataclass
from math import ceil

_NOTHING = 1e-12  # of the size, or of the bytes carried: less is rounding, not tokens


@dataclass(frozen=True)
class Bucket:
    """`size` in bytes; `line_rate` in bytes/s, at least the capacity of the link that has the bucket.

    `train`: bytes that go at once, though the tokens may not be enough; 0: nothing does. `first`: what of a
    larger message goes in trains of its own, before the rest.
    """

    size: float
    line_rate: float
    train: float = 0.0
    first: float = 0.0

    @property
    def most(self) -> float:
        """Bytes that may go beyond the capacity."""
        return self.size + self.train

    def behind(self, nbytes: float, others: int) -> float:
        """Bytes by which each of so many others on the link has more left when a message of `nbytes` comes.

        Of n flows that take turns each is ahead of a fluid by 1/n of half a train on average: the fluid ends
        together what in turns ends one train after another.
        """
        return min(self.train, nbytes) / (2 * others * (others + 1))

    def last_train(self, nbytes: float) -> float:
        """Bytes of the last train of a message."""
        if not self.train or not nbytes:
            return 0.0
        rest = nbytes - self.first if nbytes > self.first else nbytes
        return rest - self.train * (ceil(rest / self.train) - 1)


class Tokens:
    """The tokens in a bucket, with those that the message on the link may owe in the end.

    `owed`: how many that are. Fewer than none are left where the message before could owe more.

    Between two readings the link must have carried either at most its capacity or at least that, all the
    time: then how many there are follows from the bytes carried, and they are full if ever at the end.
    """

    __slots__ = ("bucket", "carried", "empty_at", "left", "owed", "since")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.left = bucket.size
        self.owed = 0.0
        self.since = self.carried = 0.0  # at the last reading: the instant, and the bytes carried by then
        self.empty_at = float("inf")  # the instant at which there will be none, as things stand

    def read(self, now: float, carried: float, capacity: float) -> float:
        """The tokens left, in bytes, once the link has carried that much."""
        left = self.left + capacity * (now - self.since) - (carried - self.carried)
        if now >= self.empty_at or abs(left) <= _NOTHING * max(self.bucket.size, carried):
            left = 0.0
        self.left = min(self.bucket.size + self.owed, left)
        self.since, self.carried, self.empty_at = now, carried, float("inf")
        return self.left

    def begin(self, nbytes: float) -> None:
        """A message of so many bytes finds the link idle, and the tokens have just been read."""
        owed = self.bucket.last_train(nbytes)
        self.left += owed - self.owed
        self.owed = owed
