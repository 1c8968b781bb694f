"""Devices of a split model that cannot differ are simulated once, and what happens to one happens to all.

Where T devices share each layer, and D replicas do the same, and all of them meet in rings only, are as fast,
and have cards as fast, to turn the T or the D round (each takes the place of the next, the last that of the
first) changes nothing. Whatever device (0, 0) of a stage sends to device (t, d), device (T − t, D − d) sends
to it at the same time. So these alone have nodes here, one a stage: what they send to others comes back to
them as theirs, and meets there what theirs would have met: a link that T devices share has a T-th of its
capacity for the one. In the end the records are turned T · D times.

Where each worker owns a share of the model (`fsdp`, `hsdp`), those of a host that have a whole group are such
a T, and the hosts are the D; else hosts turn, and each worker of the first has a node: a ring of all goes
through a host from its first worker to its last. Shares that differ by an element count as equal if that is
next to nothing; on a link that several share they would take up to a latency less for each step of a ring.

A strategy says that its workers are alike; which collectives they meet in is only known when they do. In any
other than a ring `ring.Disturbed` is raised, and the run is to be made again without this shortcut, which
remains the oracle.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from lockstep.analysis.columns import COPIES, EVENTS, Columns
from lockstep.analysis.records import Recorder
from lockstep.job.plan import Plan
from lockstep.scenarios import Network as NetworkOf
from lockstep.scenarios import Star
from lockstep.simulator.network import Connection, Network
from lockstep.simulator.topology import Topology
from lockstep.strategies.node import Message
from lockstep.strategies.shares import Shares
from lockstep.workloads.compute_time import all_alike
from lockstep.workloads.memory import require

if TYPE_CHECKING:
    from lockstep.simulator.links import Link

NEXT_TO_NOTHING = 1e-5  # of a vector: elements more or fewer
_BETWEEN_RANKS = ("message", "update", "drop")  # the events whose `peer` is a rank


class Folding:
    """The first device of each stage of replica 0, as seen from the ranks of all."""

    def __init__(self, ranks: np.ndarray, one_group: bool = False) -> None:
        """ranks: of every stage, place in it and replica, shape (K, T, D); one_group: stages are workers of
        a host, who meet all others."""
        _, self.places, self.replicas = ranks.shape
        self._one_group = one_group
        self._ranks = ranks
        self._stage, self._place, self._replica = (np.empty(ranks.size, int) for _ in range(3))
        self._stage[ranks], self._place[ranks], self._replica[ranks] = np.indices(ranks.shape)
        self.first: list[int] = ranks[:, 0, 0].tolist()

    def first_of(self, rank: int) -> int:
        """Who stands for a rank."""
        return self.first[int(self._stage[rank])]

    def turned(self, message: Message, to: int) -> Message:
        """What the first gets from the one that sends to it as it sends a message to the rank `to`."""
        place, replica = -self._place[to] % self.places, -self._replica[to] % self.replicas
        return replace(message, sender=int(self._ranks[self._stage[message.sender], place, replica]))

    def connect(self, network: Network, hosts: Sequence[int]) -> None:
        """Let what goes to others go through the first one's links, to the first."""
        for rank in self.first:
            met = self._ranks if self._one_group else self._ranks[self._stage[rank]]
            for to in met.ravel().tolist():
                first = self.first_of(to)
                if first == to:
                    continue
                near = not self._replica[to] and hosts[rank] == hosts[first]
                path_to = network.topology.path if near else network.topology.cards
                network.connect(rank, to, Connection(first, *path_to(hosts[rank], hosts[first])))

    def records(self, recorder: Recorder) -> Columns:
        """Of all, from those of the first."""
        instead = "give a nearer stop, or fewer workers"
        require(
            COPIES * self.places * self.replicas * recorder.nbytes,
            "the records of all devices",
            "stop",
            instead,
        )
        packed, names = recorder.drain()
        return Columns([self._unfolded(*each) for each in zip(EVENTS, packed, strict=True)], names)

    def _unfolded(self, event: str, rows: np.ndarray) -> np.ndarray:
        if not len(rows):
            return rows
        copies = self.places * self.replicas
        found = np.tile(rows, copies)
        place, replica = np.divmod(np.repeat(np.arange(copies), len(rows)), self.replicas)
        for column in ("node", "peer") if event in _BETWEEN_RANKS else ("node",):
            ranks = found[column]
            found[column] = self._ranks[
                self._stage[ranks],
                (self._place[ranks] + place) % self.places,
                (self._replica[ranks] + replica) % self.replicas,
            ]
        return found


def fold(plan: Plan) -> Folding | None:
    """None for a job whose devices may differ, or may do more than meet in rings."""
    scenario, cluster = plan.scenario, plan.scenario.cluster
    network, split = cluster.network, scenario.split
    if plan.replicas * split.tensor == 1 or not plan.strategy.alike:
        return None
    if scenario.stop.updates is not None or plan.quota.together is not None or scenario.workload.learns:
        return None
    if scenario.workload.synchronised:  # replicas meet with vectors that they cannot divide evenly
        return None
    if cluster.cores_per_host is not None or not all_alike(scenario, plan.sizes):
        return None
    if network.topology != Star(kind="star") or network.duplex == "half":
        return None
    if network.varying or network.background or network.processing or network.jitter or network.tcp:
        return None
    if len(plan.groups) == 1 and _shares(plan, 0) is None:  # they meet in one ring: see ring.py
        return None
    ranks = _turning(plan)
    if ranks is None or (ranks.shape[1] > 1 and (split.redundancy > 1 or network.burst or network.queue)):
        return None
    if split.tensor > 1 and not _even(plan):
        return None
    hosts = np.array(plan.hosts)[ranks]
    if (hosts != hosts[:, :1]).any() or not _turns_into_itself(hosts[:, 0]):
        return None
    cards = network.cards_of(cluster.hosts, 0)
    capacities = np.array([np.inf if card is None else card for card in cards])[hosts]
    return Folding(ranks, len(plan.groups) == 1) if (capacities == capacities[:, :1, :1]).all() else None


def _turning(plan: Plan) -> np.ndarray | None:
    """Ranks by who stays, and by the two ways in which the others turn; None: shares of a model do not turn.

    Where workers share out the model, those of a host have the parts of a group, if it has all of them; else
    each of them stays, and hosts turn: a ring of all goes through a host from its first worker to its last.
    """
    split = plan.scenario.split
    ranks = np.array([group.workers for group in plan.groups])
    shares = [_shares(plan, number) for number in range(len(ranks))]
    if shares[0] is None:
        return ranks.reshape(split.pipeline, split.tensor, -1)
    if not all(each is not None and _shared_evenly(each) for each in shares):
        return None
    groups = [[*group] for group in shares[0].groups]
    if len(ranks) > 1:  # one turn is that of whole replicas
        return ranks.reshape(split.pipeline, split.tensor, -1) if len(groups) == 1 else None
    count = plan.scenario.cluster.hosts
    by_host = ranks[0].reshape(count, -1) if not ranks.size % count else None
    if by_host is None or plan.hosts[: ranks.size] != np.repeat(range(count), by_host.shape[1]).tolist():
        return None
    if groups == by_host.tolist():
        return np.expand_dims(by_host.T, 0)
    if len(groups) > 1 and by_host.shape[1] % len(groups[0]):
        return None
    return np.expand_dims(by_host.T, 1) if count > 1 else None


def _shares(plan: Plan, group: int) -> Shares | None:
    own = plan.groups[group]
    ends = [0, *accumulate(piece.length for piece in own.pieces)]
    hosts = [plan.hosts[rank] for rank in own.workers]
    pieces = [slice(*each) for each in pairwise(ends)]
    return plan.strategy.shared(plan.scenario.strategy.parameters, hosts, pieces)


def _shared_evenly(shares: Shares) -> bool:
    """Each worker owns as much of a unit, but for next to nothing, and of what rings sum of it."""
    parts = len(shares.groups) * shares.places
    lengths = [unit.stop - unit.start for unit in shares.units]
    return all(length % parts == 0 or parts <= NEXT_TO_NOTHING * length for length in lengths)


def _even(plan: Plan) -> bool:
    """Whether the devices that share layers have as much of them, but for next to nothing."""
    parts = plan.scenario.split.tensor
    for number, group in enumerate(plan.groups):
        first = plan.groups[number // parts * parts]
        for own, its in zip(group.pieces, first.pieces, strict=True):
            if replace(own, parameters=()) != replace(its, parameters=()):
                return False
            if abs(own.length - its.length) > NEXT_TO_NOTHING * its.length:
                return False
    return True


def narrowed(network: NetworkOf, places: int) -> NetworkOf:
    """The network of one of so many devices that share all of its links."""
    if places == 1:
        return network

    def less(rate: float | None) -> float | None:
        return rate and rate / places

    inner = network.intra_host
    cards = [card.model_copy(update={"bandwidth": card.bandwidth / places}) for card in network.cards]
    update = {
        "bandwidth": less(network.bandwidth),
        "server_bandwidth": less(network.server_bandwidth),
        "cards": tuple(cards),
        "intra_host": inner and inner.model_copy(update={"bandwidth": less(inner.bandwidth)}),
    }
    return network.model_copy(update=update)


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
