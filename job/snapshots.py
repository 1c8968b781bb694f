"""Parameters kept during a run to be evaluated after it, off the clock.

How long a run will be is not known while it goes on, so the distance between snapshots doubles whenever
there are too many. Which versions are kept depends on the versions alone, so all owners, and both engines,
keep the same ones.

Holders have a shard each of the parameters or, where workers have models of their own, a model each: then
what is evaluated is their mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.strategies.owners import Owners
    from lockstep.workloads.base import Evaluation

BUDGET = 64 << 20  # bytes of parameters held by all owners together


class Snapshots:
    """The snapshots of one owner of parameters; `total_bytes` is the size of what all of them hold.

    `own`: the first parameters of a model of its own, which count as its last ones until it has others.
    """

    def __init__(self, total_bytes: int, own: Any = None) -> None:
        self.limit = min(64, max(8, BUDGET // max(1, total_bytes)))
        self.every = 1
        self.taken: dict[int, tuple[float, Any]] = {}  # version → (time, part of the parameters)
        self.last: tuple[int, float, Any] | None = None if own is None else (0, 0.0, own)

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

    def go_back(self, version: int, part: Any) -> None:
        """Forget all after a version, at which the parameters were `part`; None: nothing is left of them."""
        self.forget(version)
        self.last = None if part is None else (version, 0.0, part)

    def forget(self, version: int) -> None:
        """Forget all after a version."""
        self.taken = {v: kept for v, kept in self.taken.items() if v <= version}
        if self.last is not None and self.last[0] > version:
            self.last = None

    def at(self, version: int) -> Any:
        """The parameters at the last version that was offered, if it is this one."""
        return self.last[2] if self.last is not None and self.last[0] == version else None

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


def assemble(kept: Sequence[Snapshots], owners: Owners) -> Iterator[tuple[int, float, Any]]:
    """(version, time at which the last owner reached it, all parameters), ending with the last there are.

    `kept` has the snapshots of each owner. Owners that are `apart` may be at different versions in the end,
    the least of which is then told. Those of whose parameters nothing is left count no longer, if the others
    can do without.
    """
    if owners.without_some:
        kept = [each for each in kept if each.last is not None]
        if not kept:
            return
    common = set.intersection(*(set(each.taken) for each in kept))
    whole = [
        (v, max(each.taken[v][0] for each in kept), [each.taken[v][1] for each in kept])
        for v in sorted(common)
    ]
    last = [each.last for each in kept if each.last is not None]
    versions = [version for version, _, _ in last]
    if len(last) == len(kept) and max(versions) > 0:
        if owners.apart and whole and whole[-1][0] == min(versions):
            whole.pop()
        if not whole or whole[-1][0] < min(versions):
            whole.append((min(versions), max(time for _, time, _ in last), [part for _, _, part in last]))
    for version, time, parts in whole:
        yield version, time, together(parts, owners)


def together(parts: Sequence[Any], owners: Owners) -> Any:
    """The vector that is evaluated, from the tensors of those of the owners that are evaluated."""
    import torch

    return owners.together(parts, lambda pieces: torch.cat(list(pieces)))


def once(evaluate: Callable[[Any], Evaluation]) -> Callable[[Any], Evaluation]:
    """The same function of parameters on the CPU, which computes nothing twice for the same bytes."""
    known: dict[bytes, Evaluation] = {}

    def evaluated(vector: Any) -> Evaluation:
        key = hashlib.sha256(vector.numpy()).digest()
        if key not in known:
            known[key] = evaluate(vector)
        return known[key]

    return evaluated
