"""Who holds which slice of the parameters: to the strategy, each slice is a job of its own.

A replica of the model is `scenario.split.devices` workers, a stage each. The workers of one stage, one of
each replica, hold the same slice: they are the workers that a data-parallel strategy sees, with servers and
relays of their own beside them, on the same hosts as those of the other slices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from lockstep.job.stages import Piece
from lockstep.job.variables import variables_in
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.parallelism import Parallelism
from lockstep.strategies import Strategy
from lockstep.strategies.node import Group, Stage
from lockstep.strategies.owners import AnyOne, InCopies, Owners, Replicated, Sharded
from lockstep.strategies.parts import Part
from lockstep.strategies.placement import Role, roles_of, shards_of

# Numbers of groups (strategies.node.Group); strategies have others.
_TENSOR = 1  # of those that share layers
_NORMS = 3  # of those that normalise batches together


@dataclass(frozen=True)
class DataGroup:
    """Those that hold one slice of the parameters."""

    members: Sequence[int]
    """Ranks: workers first, then servers, then relays."""
    roles: Sequence[Role]
    """Of each member: its index in the group, and the ranks that it exchanges messages with."""
    pieces: Sequence[Piece]
    """Of the model; the slice is their parameters end to end."""
    shards: Sequence[Part]
    """The part of the slice that each server holds; all of it in one where there are no servers."""
    owners: Owners

    @cached_property
    def workers(self) -> Sequence[int]:
        """Ranks, one of each replica."""
        return [r for r, role in zip(self.members, self.roles, strict=True) if role.kind == "worker"]

    @property
    def length(self) -> int:
        """Elements of the slice."""
        return sum(piece.length for piece in self.pieces)

    @cached_property
    def slices(self) -> Sequence[slice]:
        """Of the slice, the part of each piece."""
        ends = [0, *accumulate(piece.length for piece in self.pieces)]
        return [slice(start, end) for start, end in pairwise(ends)]

    def slice_of(self, whole: Any) -> Any:
        """The slice of a whole tensor, shape (length,)."""
        import torch

        parts = [whole[part] for piece in self.pieces for part in piece.parameters]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def data_groups(scenario: Scenario, strategy: Strategy, pieces: Sequence[Sequence[Piece]]) -> list[DataGroup]:
    """A group for each stage and place in it, in their order. pieces: of the model, by place."""
    cluster, split, values = scenario.cluster, scenario.split, scenario.strategy.parameters
    stages, replicas = split.pipeline, scenario.replicas
    hierarchy = cluster.servers.hierarchy if strategy.has_servers else None
    if hierarchy and hierarchy.groups > replicas:
        problem = f"must be at most the {replicas} replicas of the model, not {hierarchy.groups}"
        raise ScenarioError(problem, key="cluster.servers.hierarchy.groups")
    local = roles_of(cluster.model_copy(update={"workers": replicas}), strategy.has_servers)
    found = []
    slices = stages * split.tensor
    for number, devices in enumerate(devices_of(split, replicas)):
        stage, tensor = divmod(number, split.tensor)
        others = [cluster.workers + place * slices + number for place in range(len(local) - replicas)]
        members = devices + others
        roles = [
            replace(
                role,
                parents=tuple(members[parent] for parent in role.parents),
                children=tuple(members[child] for child in role.children),
                followers=tuple(members[follower] for follower in role.followers),
            )
            for role in local
        ]
        own = pieces[tensor][stage::stages]
        length = sum(piece.length for piece in own)
        whole = variables_in(scenario, own) if strategy.has_servers else None
        shards = shards_of(cluster, strategy.has_servers, length, whole)
        if strategy.has_servers:
            servers = [rank for rank, role in zip(members, roles, strict=True) if role.kind == "server"]
            owners: Owners = (InCopies if cluster.servers.copies > 1 else Sharded)(servers, shards)
        else:
            kind = AnyOne if strategy.owners is Replicated and scenario.goes_on else strategy.owners
            owners = kind.among(dict(zip(members, roles, strict=True)))
        group = DataGroup(members, roles, own, shards, owners)
        shares = strategy.shared(values, [*map(cluster.host_of, devices)], group.slices)
        found.append(group if shares is None else replace(group, owners=shares.owners(devices)))
    return found


def rank_of(split: Parallelism, replicas: int, stage: int, replica: int, tensor: int = 0) -> int:
    """The device of a replica that has a stage, at a place in it: axes are counted from the inside."""
    place = {
        "tensor": (tensor, split.tensor),
        "pipeline": (stage, split.pipeline),
        "data": (replica, replicas),
    }
    rank, stride = 0, 1
    for axis in split.axes:
        number, count = place[axis]
        rank, stride = rank + number * stride, stride * count
    return rank


def devices_of(split: Parallelism, replicas: int) -> list[list[int]]:
    """The ranks of each stage and place in it, one of each replica."""
    return [
        [rank_of(split, replicas, stage, replica, tensor) for replica in range(replicas)]
        for stage in range(split.pipeline)
        for tensor in range(split.tensor)
    ]


def stages_of(scenario: Scenario, groups: Sequence[DataGroup], hosts: Sequence[int]) -> dict[int, Stage]:
    """The place of every device in its replica, by rank. hosts: of every rank."""
    split, replicas, synchronised = scenario.split, scenario.replicas, scenario.workload.synchronised
    found = {}
    for number, group in enumerate(groups):
        stage, tensor = divmod(number, split.tensor)
        exchanges = tuple(piece.exchanges(split.recompute) for piece in group.pieces)
        first = tensor // split.parts * split.parts  # of those that have all parts of the layers, once
        for replica, rank in enumerate(group.workers):
            peers = [rank_of(split, replicas, each, replica, tensor) for each in range(split.pipeline)]
            ranks = [rank_of(split, replicas, stage, replica, first + part) for part in range(split.parts)]
            ranks = [*group.workers] if synchronised else ranks
            its = tuple(hosts[each] for each in ranks)
            together = Group(tuple(ranks), its, _NORMS if synchronised else _TENSOR)
            found[rank] = Stage(
                stage, split.pipeline, replica, tensor, tuple(group.slices), tuple(peers), exchanges, together
            )
    return found


def all_roles(groups: Sequence[DataGroup]) -> list[Role]:
    """The role of every rank; an `index` counts all of its kind."""
    if len(groups) == 1:
        return list(groups[0].roles)
    found = {rank: role for group in groups for rank, role in zip(group.members, group.roles, strict=True)}
    counts: dict[str, int] = {}
    numbered = []
    for _, role in sorted(found.items()):
        numbered.append(replace(role, index=counts.get(role.kind, 0)))
        counts[role.kind] = numbered[-1].index + 1
    return numbered
