"""Parameters kept during a run to be evaluated after it, off the clock.

How long a run will be is not known while it goes on, so the distance between snapshots doubles whenever
there are too many. Which versions are kept depends on the versions alone, so all shards, and both engines,
keep the same ones.
"""

from collections.abc import Sequence
from typing import Any

_BUDGET = 64 << 20  # bytes of parameters held by all shards together


class Snapshots:
    """The snapshots of one holder of parameters; `total_bytes` is the size of all parameters."""

    def __init__(self, total_bytes: int) -> None:
        self.limit = min(64, max(8, _BUDGET // max(1, total_bytes)))
        self.every = 1
        self.taken: dict[int, tuple[float, Any]] = {}  # version → (time, part of the parameters)
        self.last: tuple[int, float, Any] | None = None

    def offer(self, version: int, time: float, part: Any) -> bool:
        """Show the parameters at a new version; True if they are kept."""
        self.last = (version, time, part)
        if version % self.every:
            return False
        self.taken[version] = (time, part)
        if len(self.taken) > self.limit:
            self.every *= 2
            self.taken = {v: kept for v, kept in self.taken.items() if v % self.every == 0}
        return version in self.taken


def assemble(shards: Sequence[Snapshots]) -> list[tuple[int, float, list[Any]]]:
    """(version, time at which the last shard reached it, parts in shard order), ending with the last ones."""
    common = set.intersection(*(set(shard.taken) for shard in shards))
    whole = [(v, max(s.taken[v][0] for s in shards), [s.taken[v][1] for s in shards]) for v in sorted(common)]
    last = [shard.last for shard in shards]
    if all(last):
        version, time = min(v for v, _, _ in last), max(t for _, t, _ in last)  # type: ignore[misc]
        if not whole or whole[-1][0] < version:
            whole.append((version, time, [part for _, _, part in last]))  # type: ignore[misc]
    return whole
