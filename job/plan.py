"""One description of a job, made once from a scenario: what both engines, metrics and pictures read.

The strategy with its factors, who does what on which host, who owns which parameters, how many mini-batches
there are, and what in the scenario means nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lockstep.job.quota import Quota, quota
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.strategies import Strategy, StrategyError, find, fits, unused
from lockstep.strategies.owners import Owners, Sharded
from lockstep.strategies.placement import Role, as_if_on_one_host, hosts, roles_of, shards_of
from lockstep.strategies.strategy import Program
from lockstep.workloads import Sizes, partition, sizes


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
    shards: Sequence[slice]
    """The part of the parameters that each server holds; all of them in one where there are no servers."""
    owners: Owners
    quota: Quota
    """How many mini-batches there are, and for whom."""
    warnings: Sequence[str]
    """What in the scenario means nothing to this job."""

    @classmethod
    def of(cls, scenario: Scenario) -> "Plan":
        """Raises ScenarioError for a strategy, a value or a cluster with which there can be no such job."""
        cluster, given = scenario.cluster, scenario.strategy
        try:
            strategy = find(given.name, given.parameters)
            fits(given.name, given.parameters, cluster)
        except StrategyError as error:
            raise ScenarioError(error.problem, key=error.key) from error
        size, roles = sizes(scenario.workload), roles_of(cluster, strategy.has_servers)
        owners = (Sharded if strategy.has_servers else strategy.owners).among(roles)
        one_host = as_if_on_one_host(cluster) if owners.in_one_memory else []
        return cls(
            scenario=scenario,
            strategy=strategy,
            sizes=size,
            roles=roles,
            hosts=hosts(cluster.workers, cluster.workers_per_host, roles, cluster.servers.colocated),
            shards=shards_of(cluster, strategy.has_servers, size.parameters),
            owners=owners,
            quota=quota(scenario, size.samples, strategy.equal_steps, strategy.pooled),
            warnings=[*unused(given.name, given.parameters), *partition.unused(scenario.workload), *one_host],
        )

    @cached_property
    def workers(self) -> range:
        """Their ranks."""
        return range(self.scenario.cluster.workers)

    @cached_property
    def worker_hosts(self) -> Sequence[int]:
        """The hosts of the workers: one list for all nodes."""
        return self.hosts[: len(self.workers)]

    @property
    def has_servers(self) -> bool:
        """Whether the parameters are on servers."""
        return self.strategy.has_servers

    @cached_property
    def relayed(self) -> bool:
        """Whether there are relays between workers and servers."""
        return any(role.kind == "relay" for role in self.roles)

    @cached_property
    def budget(self) -> int | None:
        """Mini-batches that all workers may make together; None: no bound."""
        return self.quota.in_all(len(self.workers))

    @property
    def native(self) -> bool:
        """Whether the strategy says that its collectives are the engine's own."""
        given, known = self.scenario.strategy.parameters, self.strategy.parameters.get("algorithm")
        return known is not None and given.get("algorithm", known.default) == "native"

    @cached_property
    def senders(self) -> Sequence[Sequence[int]]:
        """Of every rank, those that may send messages to it, itself among them."""
        if not self.has_servers:
            return [self.workers] * len(self.roles)
        return [[*self.neighbours(rank), rank] for rank in range(len(self.roles))]

    def program(self, rank: int) -> Program:
        """What a rank runs."""
        return self.strategy.program(self.roles[rank].kind, self.scenario.strategy.parameters)

    def epoch(self, rank: int) -> int:
        """Mini-batches in one pass over a worker's samples if all get as many; 1 if they are endless."""
        return self.sizes.epoch(len(self.workers), rank) if rank in self.workers else 1

    def neighbours(self, rank: int) -> Sequence[int]:
        """Whom a rank exchanges messages with: those above and below it, or all other workers."""
        role = self.roles[rank]
        if self.has_servers:
            return [*role.parents, *role.children]
        return [other for other in self.workers if other != rank]
