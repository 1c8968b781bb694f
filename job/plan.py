"""One description of a job, made once from a scenario: what both engines, metrics and pictures read.

The strategy with its factors, who does what on which host, who owns which parameters, how many mini-batches
there are, and what in the scenario means nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from typing import TYPE_CHECKING

from lockstep.job import asked
from lockstep.job.groups import DataGroup, all_roles, data_groups, devices_of, stages_of
from lockstep.job.joining import ALWAYS, joining
from lockstep.job.memory import HighWater, high_water, of_server
from lockstep.job.quota import Quota, quota
from lockstep.job.spread import spread
from lockstep.job.stages import Piece, micro_batches_of, pieces_of, whole
from lockstep.job.within import parts_of
from lockstep.scenarios import Cluster, Scenario, ScenarioError
from lockstep.scenarios.faults import presence
from lockstep.scenarios.workload import Data, Problem
from lockstep.strategies import Strategy, StrategyError, find, fits, unused
from lockstep.strategies.kept import Savers
from lockstep.strategies.node import Stage
from lockstep.strategies.owners import Owners, Split
from lockstep.strategies.parts import length
from lockstep.strategies.placement import Role, as_if_on_one_host, hosts, roles_of
from lockstep.strategies.strategy import Program
from lockstep.workloads import Sizes, partition, sizes

if TYPE_CHECKING:
    from lockstep.strategies.outer import Matrix
    from lockstep.workloads.embedding import Touched


@dataclass(frozen=True)
class Plan:
    """A job. Ranks count the workers first, then the servers, then the relays (strategies/placement.py)."""

    scenario: Scenario
    strategy: Strategy
    """The scenario's, with the factors that it takes from others."""
    sizes: Sizes
    """Of the workload: parameters, bytes, samples, FLOPs."""
    roles: Sequence[Role]
    """Of every rank."""
    hosts: Sequence[int]
    """Of every rank: a number for the machine it is on."""
    groups: Sequence[DataGroup]
    """Those that hold the same slice of the parameters; one, unless the model is split."""
    pieces: Sequence[Piece]
    """Of the model, in its order: each group has some of them."""
    stages: Mapping[int, Stage]
    """Of every worker, by rank, its place in its replica; empty unless gradients are computed in passes."""
    micro_batches: int
    """Parts that a mini-batch is computed in."""
    owners: Owners
    quota: Quota
    """How many mini-batches there are, and for whom."""
    warnings: Sequence[str]
    """What in the scenario means nothing to this job, or costs it more than it seems."""

    @classmethod
    def of(cls, scenario: Scenario) -> "Plan":
        """Raises ScenarioError for a strategy, a value or a cluster with which there can be no such job."""
        cluster, given = scenario.cluster, scenario.strategy
        try:
            strategy = find(given.name, given.parameters)
            of_replicas = cluster.model_copy(update={"workers": scenario.replicas})
            fits(strategy, given.name, given.parameters, of_replicas)
            devices = devices_of(scenario.split, scenario.replicas)
            strategy.shared(given.parameters, [*map(cluster.host_of, devices[0])], [slice(0, 0)])
        except StrategyError as error:
            raise ScenarioError(error.problem, key=error.key) from error
        asked.check(scenario, strategy)
        asked.check_clipping(scenario, strategy)
        size, split, micro = sizes(scenario.workload), scenario.split, micro_batches_of(scenario, strategy)
        units = strategy.pieces(given.parameters)
        in_passes = split.devices * micro > 1 or split.recompute or strategy.own_passes or units is not None
        in_passes = in_passes or scenario.workload.synchronised
        if in_passes:
            asked.check_passes(scenario, units is not None)
        if scenario.with_faults:
            from lockstep.job import recovery

            recovery.check(scenario, strategy)
        pieces = pieces_of(scenario, strategy, size, micro, devices) if in_passes else whole(size)
        groups = data_groups(scenario, strategy, parts_of(scenario, pieces, micro))
        owners = groups[0].owners
        if len(groups) > 1:
            if owners.in_one_memory:
                problem = f"{given.name}'s workers share one memory, which holds the whole model; must be 1"
                key = "pipeline" if split.pipeline > 1 else "tensor"
                raise ScenarioError(problem, key=f"parallelism.{key}")
            cuts = [tuple(part for piece in group.pieces for part in piece.parameters) for group in groups]
            ranks = [rank for group in groups for rank in group.owners.ranks]
            owners = Split(ranks, [group.owners for group in groups], cuts)
        roles = all_roles(groups)
        placed = _hosts(cluster, roles, len(groups))
        one_host = as_if_on_one_host(cluster) if owners.in_one_memory else []
        stages = stages_of(scenario, groups, placed) if in_passes else {}
        return cls(
            scenario=scenario,
            strategy=strategy,
            sizes=size,
            roles=roles,
            hosts=placed,
            groups=groups,
            pieces=pieces,
            stages=stages,
            micro_batches=micro,
            owners=owners,
            quota=quota(scenario, size.samples, strategy.equal_steps, strategy.pooled),
            warnings=[
                *unused(strategy, given.name, given.parameters),
                *partition.unused(scenario.workload),
                *asked.unused(scenario),
                *one_host,
                *spread(scenario, stages, groups, size.itemsize),
            ],
        )

    def seeded(self, scenario: Scenario) -> "Plan":
        """The job of a scenario that is its own but for the seed, of which no field depends.

        What is cached may, and is made anew.
        """
        return replace(self, scenario=scenario)

    def group(self, rank: int) -> DataGroup:
        """Those that hold the same slice of the parameters as a rank."""
        return self.groups[self.places[rank][0]]

    @cached_property
    def places(self) -> Sequence[tuple[int, int]]:
        """Of every rank the number of its group, and its place there."""
        found = {
            rank: (number, place)
            for number, group in enumerate(self.groups)
            for place, rank in enumerate(group.members)
        }
        return [found[rank] for rank in range(len(self.roles))]

    @property
    def replicas(self) -> int:
        """Replicas of the model: as many as workers, unless it is split."""
        return self.scenario.replicas

    def replica(self, worker: int) -> int:
        """Which one a worker is part of."""
        return self.places[worker][1]

    @cached_property
    def workers(self) -> range:
        """Their ranks."""
        return range(self.scenario.cluster.workers)

    @cached_property
    def worker_hosts(self) -> Sequence[Sequence[int]]:
        """The hosts of the workers of each group: one list for all its nodes."""
        return [[self.hosts[worker] for worker in group.workers] for group in self.groups]

    @cached_property
    def goes_on(self) -> bool:
        """Whether processes fail and come back while the others go on."""
        return self.scenario.goes_on

    def goes_back(self, rank: int) -> bool:
        """Whether a process that begins anew owns parameters, which go back to its last checkpoint."""
        return rank in self.owners.ranks and not self.owners.shown_by_all

    @property
    def has_servers(self) -> bool:
        """Whether the parameters are on servers."""
        return self.strategy.has_servers

    @cached_property
    def relayed(self) -> bool:
        """Whether there are relays between workers and servers."""
        return any(role.kind == "relay" for role in self.roles)

    @property
    def chunks(self) -> int:
        """Pieces of the model that each device has."""
        return len(self.pieces) // self.scenario.split.pipeline

    @property
    def units(self) -> int | None:
        """Pieces of the model in which the strategy itself computes gradients; None: it does not."""
        return self.strategy.pieces(self.scenario.strategy.parameters)

    @property
    def activation(self) -> int:
        """Bytes of a micro-batch that leave a piece of the model, or a segment of one, at most."""
        pieces = [piece for group in self.groups for piece in group.pieces]
        segments = [segment for piece in pieces for segment in (*piece.there, *piece.back)]
        most = max(*(piece.activation for piece in pieces), *(segment.nbytes for segment in segments))
        return most // self.micro_batches

    @cached_property
    def memory(self) -> Sequence[HighWater]:
        """The predicted high-water mark of the devices of each group, without servers on them."""
        workers, places = [group.workers for group in self.groups], self.scenario.split.tensor
        of = high_water(self.scenario, self.strategy, self.sizes, self.micro_batches, workers[::places])
        return [of(number // places, group.pieces) for number, group in enumerate(self.groups)]

    def high_water(self, worker: int) -> HighWater:
        """The predicted high-water mark of a worker's device."""
        own = self.memory[self.places[worker][0]]
        servers = self.served_on.get(worker)
        return own._replace(servers=sum(map(self.served_bytes, servers))) if servers else own

    def served_bytes(self, rank: int) -> int:
        """What a server or relay has in memory, at the most."""
        group, role = self.group(rank), self.roles[rank]
        itemsize, shard = self.sizes.itemsize, length(group.shards[role.shard])
        vector, children = group.length * itemsize, len(role.children)
        return of_server(self.scenario, self.strategy, vector, shard * itemsize, children)

    @cached_property
    def served_on(self) -> Mapping[int, Sequence[int]]:
        """Of the workers on whose devices servers and relays have their vectors: the ranks of these.

        Those of a host have its devices in turn.
        """
        servers = self.scenario.cluster.servers
        found: dict[int, list[int]] = {}
        if servers.device == "cpu" or not servers.colocated:
            return found
        devices: dict[int, list[int]] = {}
        for worker in self.workers:
            devices.setdefault(self.hosts[worker], []).append(worker)
        turns = {host: cycle(those) for host, those in devices.items()}
        for rank in range(len(self.workers), len(self.roles)):
            found.setdefault(next(turns[self.hosts[rank]]), []).append(rank)
        return found

    @cached_property
    def budget(self) -> int | None:
        """Mini-batches that all replicas may make together; None: no bound."""
        return self.quota.in_all(self.replicas)

    @property
    def native(self) -> bool:
        """Whether the strategy says that its collectives are the engine's own."""
        given, known = self.scenario.strategy.parameters, self.strategy.parameters.get("algorithm")
        return known is not None and given.get("algorithm", known.default) == "native"

    @cached_property
    def senders(self) -> Sequence[Sequence[int]]:
        """Of every rank, those that may send messages to it, itself among them."""
        if not self.has_servers and len(self.groups) == 1:
            return [self.workers] * len(self.roles)
        return [[*self.neighbours(rank), rank] for rank in range(len(self.roles))]

    @cached_property
    def savers(self) -> Collection[int]:
        """Ranks that write checkpoints, in order."""
        by = {Savers.OWNERS: self.owners.evaluated, Savers.WORKERS: self.workers, Savers.NOBODY: ()}
        return dict.fromkeys(by[self.strategy.savers]).keys()  # which are quick to find

    def checkpoints(self, rank: int) -> tuple[int | None, float]:
        """After how many updates a rank writes a checkpoint, and the seconds a byte takes; None: never."""
        recovery, storage = self.scenario.recovery, self.scenario.cluster.storage
        rate = storage.write if storage else None
        if recovery is None or recovery.checkpoint is None or rank not in self.savers:
            return None, 0.0
        return recovery.checkpoint.every, 1 / rate if rate else 0.0

    @cached_property
    def touching(self) -> "Touched | None":
        """Which rows of the parameters mini-batches touch; None unless only these are pushed and pulled."""
        workload, seed = self.scenario.workload, self.scenario.seed
        if not asked.by_row(self.scenario, self.strategy):
            return None
        from lockstep.workloads.embedding import Touched

        assert isinstance(workload, Problem)
        return Touched(workload, len(self.workers), seed)

    @cached_property
    def matrices(self) -> "Sequence[Matrix]":
        """The weights of fully connected layers; none unless their gradients are sent as outer products."""
        workload = self.scenario.workload
        if not asked.as_products(self.scenario, self.strategy):
            return ()
        from lockstep.job.matrices import matrices

        assert isinstance(workload, Data)
        return matrices(workload)

    def program(self, rank: int) -> Program:
        """What a rank runs."""
        program = self.strategy.program(self.roles[rank].kind, self.scenario.strategy.parameters)
        joins_at, _ = self.presence.get(rank, ALWAYS)
        return joining(program, joins_at) if joins_at else program

    @cached_property
    def presence(self) -> Mapping[int, tuple[float, float]]:
        """Of the workers that join or leave by plan: from when until when they are there, s."""
        return presence(self.scenario.cluster.faults)

    def has_joined(self, rank: int, now: float) -> bool:
        """Whether a rank is there by then, or has been: a worker may join by plan."""
        return self.presence.get(rank, ALWAYS)[0] <= now

    def epoch(self, rank: int) -> int:
        """Mini-batches in one pass over a worker's samples if all get as many; 1 if they are endless."""
        return self.sizes.epoch(self.replicas, self.replica(rank)) if rank in self.workers else 1

    def told_of(self, rank: int) -> Sequence[int]:
        """Who hears when a rank leaves or joins: whom it pushes to, or without servers all other workers."""
        if self.has_servers:
            return self.roles[rank].parents
        return [worker for worker in self.group(rank).workers if worker != rank]

    def neighbours(self, rank: int) -> Sequence[int]:
        """Whom a rank exchanges messages with.

        Those above and below it, or all other workers of its group; the other stages of its replica, and
        those that share its layers.
        """
        role = self.roles[rank]
        above = [*role.parents, *role.children, *role.followers]
        others = above if self.has_servers else self.group(rank).workers
        stage = self.stages.get(rank)
        near = [] if stage is None else [*stage.peers, *(stage.group.ranks if stage.group else ())]
        return [other for other in {**dict.fromkeys(others), **dict.fromkeys(near)} if other != rank]


def _hosts(cluster: Cluster, roles: Sequence[Role], slices: int) -> list[int]:
    """The host of every rank; those that do for each slice what one server or relay does share its host."""
    whole = roles_of(cluster, len(roles) > cluster.workers)
    placed = hosts(cluster.workers, cluster.workers_per_host, whole, cluster.servers.colocated)
    return placed[: cluster.workers] + [host for host in placed[cluster.workers :] for _ in range(slices)]
