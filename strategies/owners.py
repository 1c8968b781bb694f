"""Who owns the parameters: who counts versions of them, and what a snapshot of all is put together from.

Every owner keeps its part at some versions (workloads/snapshots.py); what is evaluated is put together from
the parts of all owners whose parameters are looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lockstep.strategies.parts import Concatenate, Part, places, together
from lockstep.strategies.placement import Role


@dataclass(frozen=True, repr=False)
class Owners:
    """Ranks that own parameters, and count versions, each of its own part."""

    ranks: Sequence[int]

    apart: ClassVar[bool] = False
    """Whether they may be at different versions when the run ends."""
    without_some: ClassVar[bool] = False
    """Whether what is evaluated can do without some of them."""
    shown_by_all: ClassVar[bool] = False
    """Whether every process shows versions of what counts as the first one's."""
    in_one_memory: ClassVar[bool] = False
    """Whether all workers have the same parameters in the memory of one host."""

    @classmethod
    def among(cls, roles: Mapping[int, Role]) -> "Owners":
        """The owners of a job with these roles, by rank."""
        return cls([*roles])

    @property
    def evaluated(self) -> Sequence[int]:
        """Those whose parts, together, are evaluated."""
        return self.ranks

    @property
    def copies(self) -> int:
        """How many times the whole vector's size a snapshot of all parts takes."""
        return 1

    def owner(self, rank: int) -> int:
        """At which owner an update is counted that `rank` makes."""
        return rank

    def keeps(self, rank: int) -> bool:
        """Whether this rank's process keeps snapshots."""
        return rank in self.evaluated

    def together(self, parts: Sequence[Any], concatenate: Concatenate) -> Any:
        """The vector that is evaluated, from the parts of those evaluated, in their order."""
        return concatenate(parts)


@dataclass(frozen=True, repr=False)
class Sharded(Owners):
    """A server for each shard of the parameters."""

    shards: Sequence[Part]

    def together(self, parts: Sequence[Any], concatenate: Concatenate) -> Any:
        """The shards, each run of them in its place."""
        return together(parts, places(self.shards), concatenate)


@dataclass(frozen=True, repr=False)
class InCopies(Sharded):
    """Several servers for each shard, a group of servers after the other; the copies' mean is evaluated."""

    apart = True

    @property
    def copies(self) -> int:
        """As many as there are groups."""
        return len(self.ranks) // len(self.shards)

    def together(self, parts: Sequence[Any], concatenate: Concatenate) -> Any:
        """The mean of the copies, added in their order."""
        count = len(self.shards)
        wholes = [super(InCopies, self).together(parts[c * count : (c + 1) * count], concatenate)
                  for c in range(self.copies)]  # fmt: skip
        return sum(wholes[1:], wholes[0]) / len(wholes)


class Replicated(Owners):
    """Every worker holds all parameters, and all hold the same."""

    @property
    def evaluated(self) -> Sequence[int]:
        """One: the others have the same."""
        return self.ranks[:1]


class AnyOne(Owners):
    """As `Replicated` where workers come and go: what any of them shows counts as the first one's."""

    shown_by_all = True

    @classmethod
    def among(cls, roles: Mapping[int, Role]) -> Owners:
        """The first worker stands for all."""
        return cls([*roles][:1])

    def owner(self, rank: int) -> int:
        """The first one."""
        return self.ranks[0]

    def keeps(self, rank: int) -> bool:
        """Every worker sees some of the versions: those that are made while it is there."""
        return True


class OneModelEach(Owners):
    """Every worker holds a model of its own; their mean is evaluated."""

    apart = without_some = True

    @property
    def copies(self) -> int:
        """As many as there are models."""
        return len(self.ranks)

    def together(self, parts: Sequence[Any], concatenate: Concatenate) -> Any:
        """The mean of the models, added in the order of ranks."""
        return sum(parts[1:], parts[0]) / len(parts)


class SharedMemory(AnyOne):
    """All workers have one vector in memory that they share; it counts as the first one's."""

    in_one_memory = True


@dataclass(frozen=True, repr=False)
class Split(Owners):
    """Owners of each of several slices of the parameters, which consist of the pieces of a whole vector."""

    slices: Sequence[Owners]
    pieces: Sequence[Part]
    """Of the whole vector: those of each slice, in order."""

    @property
    def apart(self) -> bool:  # type: ignore[override]
        """As each slice's are."""
        return self.slices[0].apart

    @property
    def evaluated(self) -> Sequence[int]:
        """Those of all slices."""
        return [rank for part in self.slices for rank in part.evaluated]

    @property
    def copies(self) -> int:
        """As for each slice."""
        return self.slices[0].copies

    def owner(self, rank: int) -> int:
        """As for the rank's slice."""
        return rank

    def together(self, parts: Sequence[Any], concatenate: Concatenate) -> Any:
        """The slices' vectors, cut into their pieces, in the order of the whole."""
        vectors, left = [], list(parts)
        for owners in self.slices:
            own, left = left[: len(owners.evaluated)], left[len(owners.evaluated) :]
            vectors.append(owners.together(own, concatenate))
        return together(vectors, places(self.pieces), concatenate)
