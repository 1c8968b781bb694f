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

    def wants(self, version: int) -> bool:
        """Whether the parameters at a new version are to be kept; if there are too many, others no longer."""
        while version // self.every > self.limit:
            self.every *= 2
            self.taken = {v: kept for v, kept in self.taken.items() if v % self.every == 0}
        return version % self.every == 0

    def offer(self, version: int, time: float, part: Any) -> bool:
        """Show the parameters at a new version; True if they are kept."""
        self.last = (version, time, part)
        if not self.wants(version):
            return False
        self.taken[version] = (time, part)
        return True

    def finish(self, part: Any) -> None:
        """Put what a run leaves in the place of the last version as it was when it was new."""
        if self.last is not None:
            version, time, _ = self.last
            self.taken.pop(version, None)
            self.last = (version, time, part)


def merged(processes: Sequence[Snapshots]) -> Snapshots:
    """What several processes have kept of one vector, each some of its versions, as if one had seen all."""
    whole = max(processes, key=lambda seen: seen.every)
    kept = {v: found for seen in processes for v, found in seen.taken.items() if v % whole.every == 0}
    whole.taken = dict(sorted(kept.items()))
    whole.last = max((seen.last for seen in processes if seen.last), key=lambda last: last[0], default=None)
    return whole


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
