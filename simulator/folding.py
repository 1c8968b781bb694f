"""Replicas of a split model that cannot differ are simulated once, and what happens to one happens to all.

Where D replicas meet in rings only, are as fast, and have cards as fast, to turn them round (each takes the
place of the next, the last that of the first) changes nothing. Whatever replica 0 sends to replica r, replica
D − r sends to replica 0 at the same time. So replica 0 alone has nodes here: what it sends to others comes
back to it over its own cards as theirs, and meets there what theirs would have met. In the end its records
are turned D times.

A strategy says that its workers are alike; which collectives they meet in is only known when they do. In any
other than a ring `ring.Disturbed` is raised, and the run is to be made again without this shortcut, which
remains the oracle.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lockstep.analysis.records import COPIES, EVENTS, Recorder, table
from lockstep.job.plan import Plan
from lockstep.scenarios import Star
from lockstep.simulator.network import Connection, Network
from lockstep.simulator.topology import Topology
from lockstep.strategies.node import Message
from lockstep.workloads.compute_time import all_alike
from lockstep.workloads.memory import require

if TYPE_CHECKING:
    from lockstep.simulator.links import Link

_BETWEEN_RANKS = ("message", "update", "drop")  # the events whose `peer` is a rank


class Folding:
    """Replica 0, as seen from the ranks of all."""

    def __init__(self, ranks: np.ndarray) -> None:
        """ranks: of every stage and replica, shape (K, D)."""
        self.replicas = ranks.shape[1]
        self._ranks = ranks
        self._stage, self._replica = np.empty(ranks.size, int), np.empty(ranks.size, int)
        self._stage[ranks], self._replica[ranks] = np.indices(ranks.shape)
        self.first: list[int] = ranks[:, 0].tolist()

    def first_of(self, rank: int) -> int:
        """Who stands for a rank."""
        return self.first[int(self._stage[rank])]

    def turned(self, message: Message, to: int) -> Message:
        """What replica 0 gets from the one that sends to it as it sends a message to the rank `to`."""
        back = -self._replica[to] % self.replicas
        return replace(message, sender=int(self._ranks[self._stage[message.sender], back]))

    def connect(self, network: Network, hosts: Sequence[int]) -> None:
        """Let what goes to other replicas go through replica 0's cards, to replica 0."""
        for rank in self.first:
            for to in self._ranks[self._stage[rank], 1:].tolist():
                path, latency = network.topology.cards(hosts[rank], hosts[self.first_of(to)])
                network.connect(rank, to, Connection(self.first_of(to), path, latency))

    def records(self, recorder: Recorder) -> pd.DataFrame:
        """Of all replicas, from those of one."""
        instead = "give a nearer stop, or fewer workers"
        require(COPIES * self.replicas * recorder.nbytes, "the records of all replicas", "stop", instead)
        packed, names = recorder.drain()
        return table([self._unfolded(*each) for each in zip(EVENTS, packed, strict=True)], names)

    def _unfolded(self, event: str, rows: np.ndarray) -> np.ndarray:
        if not len(rows):
            return rows
        found = np.tile(rows, self.replicas)
        turns = np.repeat(np.arange(self.replicas), len(rows))
        for column in ("node", "peer") if event in _BETWEEN_RANKS else ("node",):
            ranks = found[column]
            found[column] = self._ranks[self._stage[ranks], (self._replica[ranks] + turns) % self.replicas]
        return found


def fold(plan: Plan) -> Folding | None:
    """None for a job whose replicas may differ, or may do more than meet in rings."""
    scenario, cluster = plan.scenario, plan.scenario.cluster
    network = cluster.network
    if len(plan.groups) == 1 or plan.replicas == 1 or not plan.strategy.alike or scenario.workload.learns:
        return None
    if scenario.stop.updates is not None or plan.quota.together is not None:
        return None
    if cluster.cores_per_host is not None or not all_alike(scenario, plan.sizes):
        return None
    if network.topology != Star(kind="star") or network.duplex == "half":
        return None
    if network.varying or network.background:
        return None
    ranks = np.array([group.workers for group in plan.groups])
    hosts = np.array(plan.hosts)[ranks]
    if not _turns_into_itself(hosts):
        return None
    cards = network.cards_of(cluster.hosts, 0)
    capacities = np.array([np.inf if card is None else card for card in cards])[hosts]
    return Folding(ranks) if (capacities == capacities[:, :1]).all() else None


def stand_ins(folding: Folding, plan: Plan, topology: Topology) -> "dict[Link, Link]":
    """Of each link of a replica's hosts, which of replica 0's stands for it."""
    found: dict[Link, Link] = {}
    for rank in plan.workers:
        own, first = plan.hosts[rank], plan.hosts[folding.first_of(rank)]
        found |= dict(zip(topology.of_host(own), topology.of_host(first), strict=True))
    return found


def _turns_into_itself(hosts: np.ndarray) -> bool:
    """Whether each host of a replica, and of no other, has the stages that one host of replica 0 has."""
    of_first = hosts[:, 0]
    pairs = {(host, first) for row, first in zip(hosts, of_first, strict=True) for host in row.tolist()}
    return len(pairs) == int(hosts.shape[1]) * len(np.unique(of_first)) == len({*hosts.flat})
