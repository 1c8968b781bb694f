"""The network: messages between nodes, over the links of a topology.

From one node to another there is one connection, which carries one message at a time, in the order of
sending, as TCP does. A message waits for the sender's per-message overhead (one at a time per sender), then
for its turn on the connection, flows over the links between the two hosts, and arrives one latency after its
last byte has left. It is handed over after the receiver's per-message overhead (one at a time per receiver,
in the order of arrival).

With `network.tcp` messages between hosts go as windows let them, and a card sends in order (windows.py).

Not modelled: packets, TCP's congestion control, loss. What headers cost is taken off the links' capacities
(goodput).
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from heapq import heappush
from math import inf
from typing import Any

import simpy

from lockstep.job.events import Event
from lockstep.scenarios.network import Processing, Tcp
from lockstep.simulator.cores import Cores
from lockstep.simulator.events import NORMAL, Aside, Scheduled, Timeout, soon
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Flow
from lockstep.simulator.processing import MessageCores
from lockstep.simulator.queues import Queues
from lockstep.simulator.topology import Path, Topology
from lockstep.simulator.windows import Windows


class Transfer(Flow):
    """A message on its way. Awaiting it waits until its last byte has left, which is at `left_at`."""

    __slots__ = (
        *("arrived", "callbacks", "connection", "left_at", "message", "away", "nbytes", "network", "start"),
    )
    _ok = True  # it is its own event when it arrives

    def __init__(
        self,
        network: "Network",
        connection: "Connection",
        nbytes: int,
        message: Any,
        arrived: Callable[["Transfer"], object],
    ) -> None:
        self.path = connection.path
        self.size = self.nbytes = nbytes
        self.owner = None
        self.network = network
        self.connection = connection
        self.message = message
        self.arrived = arrived
        self.start: float = network.environment._now
        self.left_at = inf
        self.away: Event | None = None  # made only if somebody waits
        self.callbacks = network.arrivals

    def __await__(self) -> Generator[Any, Any, None]:
        if self.left_at == inf:
            self.away = self.away or Scheduled()
            yield from self.away.__await__()

    def sent(self) -> None:
        """The last byte has left the sender."""
        self.left_at = self.network.environment._now
        if self.away is not None:
            soon(self.network.environment, self.away)

    def done(self) -> None:
        """The last byte has passed all links: the next message may go, this one arrives a latency later."""
        connection, environment = self.connection, self.network.environment
        if self.left_at == inf:
            if self.away is None:
                self.left_at = environment._now  # as a rule nobody waits for that: without a call
            else:
                self.sent()
        queue: list[Any] = environment._queue
        now = environment._now
        at = now + connection.latency if connection.drawn is None else connection.arrival(now)
        heappush(queue, (at, NORMAL, next(environment._eid), self))
        if connection.waiting:
            following = connection.waiting.popleft()
            Timeout(environment, 0.0, lambda _: self.network.begin(following))
        else:
            connection.busy = False


class Connection:
    """What carries the messages to the node `to` from one other, one at a time.

    `drawn`: the latency of each, where they differ. No message arrives before an earlier one.
    """

    __slots__ = ("busy", "drawn", "last", "latency", "path", "to", "waiting")

    def __init__(self, to: int, path: Path, latency: float, drawn: Iterator[float] | None = None) -> None:
        self.drawn = drawn
        self.last = 0.0  # when the last message arrives, if latencies differ
        self.to = to
        self.path = path
        self.latency = latency
        self.busy = False  # a message is under way, or about to be
        self.waiting: deque[Transfer] | None = None  # the next ones; an empty one takes 0.6 kB

    def wait(self, transfer: Transfer) -> None:
        """Let a message be the last of those that are next."""
        self.waiting = self.waiting or deque()
        self.waiting.append(transfer)

    def arrival(self, now: float) -> float:
        """When a message arrives whose last byte leaves now, where latencies differ."""
        assert self.drawn is not None
        self.last = max(self.last, now + next(self.drawn))
        return self.last


class Network:
    """Carries messages between nodes. `host_of[rank]` is the host of a node."""

    def __init__(
        self,
        environment: simpy.Environment,
        topology: Topology,
        host_of: Sequence[int],
        message_overhead: float = 0.0,
        receive_overhead: float = 0.0,
        queue: float = 0.0,
        drawn: Callable[[float, int, int], Iterator[float]] | None = None,
        tcp: Tcp | None = None,
    ) -> None:
        """Overheads in s: what a message takes of its sender's and of its receiver's time.

        `queue`: how many bytes of each message may wait in switches. `drawn`: the latencies between two ranks
        on different hosts, where they differ; it is told their mean.
        """
        self.environment = environment
        self.flows = Flows(environment)
        self._queues = Queues(self.flows, queue) if queue else None
        self._windows = Windows(self.flows, tcp) if tcp is not None else None
        self.topology = topology
        self.host_of = host_of
        self.message_overhead = message_overhead
        self.receive_overhead = receive_overhead
        self.bytes_sent = self.bytes_arrived = 0
        self.messages = 0  # under way
        self.ready = [0.0] * len(host_of)  # when each sender has done with its messages' overheads
        self._taken_in = [0.0] * len(host_of)  # and each receiver
        self._drawn = drawn
        self._connections: dict[tuple[int, int], Connection] = {}
        self.processing: MessageCores | None = None
        self.arrivals = [self._take_in if receive_overhead else self._hand_over]  # what an arrival calls

    def share(self, cores: Cores, costs: Processing) -> None:
        """Let messages take what they cost of these cores."""
        overheads = self.message_overhead, self.receive_overhead
        self.processing = MessageCores(cores, costs, *overheads, self._hand_over)
        self.arrivals[:] = [self.processing.arrived]

    def send(
        self, sender: int, to: int, nbytes: int, message: Any, arrived: Callable[[Transfer], object]
    ) -> Transfer:
        """Send a message of `nbytes`; `arrived` is called with the transfer when it is there."""
        connection = self._connections.get((sender, to)) or self.connection(sender, to)
        transfer = Transfer(self, connection, nbytes, message, arrived)
        self.bytes_sent += nbytes
        self.messages += 1
        if self.processing is not None:
            self.processing.send(sender, transfer, self._enqueue)
        elif self.message_overhead:
            now = self.environment.now
            self.ready[sender] = max(now, self.ready[sender]) + self.message_overhead
            Timeout(self.environment, self.ready[sender] - now, lambda _: self._enqueue(transfer))
        elif self._windows is not None:
            self._enqueue(transfer)
        elif connection.busy:
            connection.wait(transfer)
        else:
            self.begin(transfer)
        return transfer

    def connection(self, sender: int, to: int) -> Connection:
        """What carries the messages from one rank to another."""
        connection = self._connections.get((sender, to))
        if connection is None:
            hosts = self.host_of[sender], self.host_of[to]
            path, latency = self.topology.path(*hosts)
            drawn = None
            if self._drawn is not None and hosts[0] != hosts[1]:
                drawn = self._drawn(latency, sender, to)
            connection = self._connections[sender, to] = Connection(to, path, latency, drawn)
        return connection

    def between_hosts(self) -> bool:
        """Whether a message has been sent from one host to another."""
        return any(self.host_of[sender] != self.host_of[to] for sender, to in self._connections)

    def connect(self, sender: int, to: int, connection: Connection) -> None:
        """Let that carry the messages from one rank to another."""
        self._connections[sender, to] = connection

    def _take_in(self, transfer: Transfer) -> None:
        """Let a message that is there take its receiver's time, after those before it."""
        now, receiver = self.environment.now, transfer.connection.to
        self._taken_in[receiver] = max(now, self._taken_in[receiver]) + self.receive_overhead
        Timeout(self.environment, self._taken_in[receiver] - now, lambda _: self._hand_over(transfer))

    def _hand_over(self, transfer: Transfer) -> None:
        self.bytes_arrived += transfer.nbytes
        self.messages -= 1
        transfer.arrived(transfer)

    def under_way(self) -> bool:
        """Whether a message is, or anything will happen but asides: the background's, and bursts' ends."""
        return self.bytes_sent != self.bytes_arrived or any(
            not isinstance(event, Aside) for *_, event in self.environment._queue
        )

    def _enqueue(self, transfer: Transfer) -> None:
        if self._windows is not None and len(transfer.path) > 1:
            if self.processing is not None:
                self.processing.begin(transfer)
            self._windows.send(transfer)
        elif transfer.connection.busy:
            transfer.connection.wait(transfer)
        else:
            self.begin(transfer)

    def begin(self, transfer: Transfer) -> None:
        """Let a message flow whose turn it is."""
        comes = not transfer.connection.busy
        transfer.connection.busy = True
        if self.processing is not None:
            self.processing.begin(transfer)
        if not transfer.path or not transfer.nbytes:
            transfer.done()
        elif self._queues is None or len(transfer.path) == 1:
            self.flows.add(transfer, comes=comes)
        else:
            self._queues.start(transfer.path, transfer.nbytes, transfer.sent, transfer.done, comes=comes)
