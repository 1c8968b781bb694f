"""Collectives of devices that share a host, and its link with nobody else, without their messages.

Where all of them are simulated once (folding.py) they enter a collective at the same instant, and each step
of it takes all as long: the time at which it ends follows at once. `strategies.collectives` is what is
computed, and remains the oracle.
"""

from collections import Counter
from collections.abc import Awaitable
from math import inf
from typing import TYPE_CHECKING, Any

from lockstep.job.events import Event
from lockstep.job.node import Node
from lockstep.simulator.events import timeout
from lockstep.simulator.links import Flow
from lockstep.simulator.topology import Path
from lockstep.strategies.collectives import all_gather, reduce_scatter, ring
from lockstep.strategies.node import Collective, Group, Vector

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation

_STEPS = {ring: 2, reduce_scatter: 1, all_gather: 1}  # times the members but one


class _Spread(Flow):
    """What a link carries meanwhile, as if evenly: nobody else's bytes share it."""

    __slots__ = ("begun", "end")

    def __init__(self, path: Path, nbytes: int, begun: float, end: float) -> None:
        super().__init__(path, nbytes)
        self.begun, self.end = begun, end

    def left(self, now: float) -> float:
        """Bytes that are still to come."""
        return self.size * (self.end - now) / (self.end - self.begun) if now < self.end else 0.0


class Alone:
    """The groups of a folded simulation that have a link for themselves."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        plan, network = simulation.plan, simulation.scenario.cluster.network
        self._workers = Counter(plan.hosts[rank] for rank in plan.workers)  # by host
        in_time = simulation.scenario.stop.time is not None  # which may be up within an exchange
        self._able = not (network.receive_overhead or network.processing or in_time)

    def exchange(
        self, node: Node, program: Collective, vector: Vector, among: Group | None
    ) -> Awaitable[Vector] | None:
        """What it comes to, when it is over; None: only its messages can tell."""
        if among is None or not self._able or program not in _STEPS:
            return None
        if len({*among.hosts}) > 1 or self._workers[among.hosts[0]] != len(among.ranks):
            return None
        simulation, p = self._simulation, len(among.ranks)
        network, arithmetic = simulation.network, node.arithmetic
        nbytes = vector.nbytes if program is all_gather else vector.nbytes // p
        connection = network.connection(node.rank, among.ranks[1 % p])
        rate = min((link.capacity for link in connection.path), default=inf)
        steps = _STEPS[program] * (p - 1)
        adding = simulation.apply_s(3 * nbytes) if program is not all_gather else 0.0
        begun = start = node.clock.now
        ready, overhead = network.ready[node.rank], network.message_overhead
        for step in range(steps):  # as the messages would: in this order, the times have the same bits
            goes = start
            if overhead:
                ready = max(start, ready) + overhead
                goes = start + (ready - start)
            left = goes + nbytes / rate
            received = max(start, left + connection.latency)
            if adding and step < p - 1:
                received += node.busy.charge(node, received, adding) - received
            start = max(received, left)
        network.ready[node.rank] = ready
        found: Any = vector
        if program is all_gather:
            found = arithmetic.blank(p * nbytes)
        elif program is reduce_scatter:
            found = arithmetic.blank(nbytes)
        done, stage = Event(), node.stage
        number = node.collectives * stage.count + stage.index  # of one stage's: others do not take part
        node.collectives += 1

        spread = _Spread(connection.path, steps * nbytes, begun, start)
        for link in connection.path:
            link.entered += spread.size
            link.flows[spread] = spread.path

        def over(_: object) -> None:
            for link in connection.path:
                del link.flows[spread]
            network.flows.ended(steps)
            node.recorder.collective(node.rank, begun, node.clock.now, number, steps * nbytes)
            done.happen(found)

        timeout(node.clock, start - begun).then(over)  # type: ignore[arg-type]
        return done
