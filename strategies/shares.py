"""What workers divide among themselves: of every unit of the parameters each owns an equal share.

ZeRO (Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models", §5):
stage 1 divides the optimizer's state, stage 2 gradients too, stage 3 parameters too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from lockstep.strategies.mistakes import StrategyError, one_of
from lockstep.strategies.owners import Owners, Replicated, Split
from lockstep.strategies.parts import cut


class Held(NamedTuple):
    """Elements that a worker has, by what they are of."""

    parameters: int
    gradient: int
    optimizer: int
    """Of whose optimizer's state it has all."""
    in_full: int
    """Parameters and gradients of units that are there for a while, besides those: at the most."""


@dataclass(frozen=True, repr=False)
class Shares:
    """Units of a slice of the parameters, and who owns which share of each."""

    units: Sequence[slice]
    groups: Sequence[Sequence[int]]
    """Workers, by index, that together own all; each has its share of each unit by its place there."""
    zero: int
    ahead: int = 0
    """Units that are gathered before the one that is needed."""
    reshard: bool = True
    """Parameters of others are dropped between the forward and the backward pass."""

    @property
    def places(self) -> int:
        """Workers that share a unit."""
        return len(self.groups[0])

    def owned(self, place: int) -> list[slice]:
        """The share of each unit."""
        return [
            slice(
                unit.start + (unit.stop - unit.start) * place // self.places,
                unit.start + (unit.stop - unit.start) * (place + 1) // self.places,
            )
            for unit in self.units
        ]

    def owners(self, ranks: Sequence[int]) -> Owners:
        """Of the slice, by the ranks of the workers: those with the same place have the same."""
        alike = [Replicated([ranks[group[place]] for group in self.groups]) for place in range(self.places)]
        return Split(ranks, alike, [tuple(self.owned(place)) for place in range(self.places)])

    def held(self, together: bool) -> Held:
        """What the worker in the first place has; `together`: gradients of all units come at once.

        Rajbhandari et al. 2020, §3.1 and §5: with Adam and mixed precision 4 + 12/k, 2 + 14/k and 16/k bytes
        a parameter for stages 1, 2 and 3 among k workers, and what is there in full for a while.
        """
        lengths = [unit.stop - unit.start for unit in self.units]
        everything, share = sum(lengths), max(map(_total, map(self.owned, range(self.places))))
        if self.zero == 1:
            return Held(everything, everything, share, 0)
        if self.zero == 2:  # a unit's gradient is there until it is reduced
            return Held(everything, share, share, everything if together else max(lengths))
        return Held(share, share, share, self._gathered(lengths))

    def _gathered(self, lengths: Sequence[int]) -> int:
        """Units in full, as the passes go through them: parameters from when they are asked for, gradients
        until they are reduced, which is before the unit after those asked for is needed."""
        ahead, moments = self.ahead, []
        for unit in range(len(lengths)):
            first = unit if self.reshard else 0
            moments.append(sum(lengths[first : unit + ahead + 1]))
            last = max(0, unit - ahead) if self.reshard else 0
            moments.append(sum(lengths[last : unit + 1]) + sum(lengths[unit : unit + ahead + 1]))
        return max(moments)


def sharded(
    hosts: Sequence[int],
    pieces: Sequence[slice],
    *,
    zero: int = 3,
    buckets: int = 1,
    prefetch: int = 1,
    reshard: bool = True,
) -> Shares:
    """Among all workers. hosts: of each; pieces: of the model, as slices of their slice of the parameters."""
    units = list(pieces) if zero == 3 else cut(pieces[-1].stop, [1] * buckets)
    return Shares(units, [range(len(hosts))], zero, prefetch, reshard)


def sharded_in_groups(
    hosts: Sequence[int],
    pieces: Sequence[slice],
    *,
    group_size: int | None = None,
    zero: int = 3,
    buckets: int = 1,
    prefetch: int = 1,
    reshard: bool = True,
) -> Shares:
    """Among each `group_size` workers; None: among those of each host. Raises StrategyError if they differ
    in number."""
    found = sharded(hosts, pieces, zero=zero, buckets=buckets, prefetch=prefetch, reshard=reshard)
    return Shares(found.units, groups(hosts, group_size), zero, prefetch, reshard)


def groups(hosts: Sequence[int], size: int | None) -> list[list[int]]:
    """Workers that share, by index; raises StrategyError."""
    n = len(hosts)
    if size is None:
        found = [[worker for worker in range(n) if hosts[worker] == host] for host in dict.fromkeys(hosts)]
        if len({*map(len, found)}) > 1:
            each = ", ".join(str(len(group)) for group in found)
            problem = f"must be given: hosts have different numbers of these workers ({each})"
            raise StrategyError("strategy.group_size", problem)
        return found
    if n % size:
        valid = one_of(k for k in range(1, n + 1) if n % k == 0)
        raise StrategyError("strategy.group_size", f"must divide the {n} workers: {valid}; not {size}")
    return [list(range(first, first + size)) for first in range(0, n, size)]


def place_in(groups: Sequence[Sequence[int]], worker: int) -> tuple[int, int]:
    """The group of a worker, and its place there."""
    return next((g, group.index(worker)) for g, group in enumerate(groups) if worker in group)


def _total(parts: Sequence[slice]) -> int:
    return sum(part.stop - part.start for part in chain(parts))
