"""The network: messages between hosts on a switch that is never full.

Each host has a network card with an up-link and a down-link (full duplex). From one node to another there is
one connection, which carries one message at a time, in the order of sending, as TCP does. A message waits for
the sender's per-message overhead (one at a time per sender), then for its turn on the connection, flows over
the sender's up-link and the receiver's down-link, and arrives one latency after its last byte has left.
Between nodes of one host it arrives at once.

Not modelled: packets, headers, TCP's slow start and congestion control, loss, switch buffers.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import simpy

from simulator.flows import Call, Flows, Link


class Transfer:
    """A message on its way. Awaiting it waits until its last byte has left."""

    __slots__ = ("arrived", "connection", "event", "left", "message", "nbytes", "network", "start")

    def __init__(
        self,
        network: "Network",
        connection: "Connection",
        nbytes: int,
        message: Any,
        arrived: Callable[["Transfer"], object],
    ) -> None:
        self.network = network
        self.connection = connection
        self.nbytes = nbytes
        self.message = message
        self.arrived = arrived
        self.start = network.environment.now
        self.left = False
        self.event: simpy.Event | None = None  # made only if somebody waits

    def __await__(self) -> Generator[simpy.Event, Any, None]:
        if not self.left:
            self.event = self.event or simpy.Event(self.network.environment)
            yield self.event

    def gone(self) -> None:
        """The last byte has left: the next message may go, and this one arrives a latency later."""
        self.left = True
        if self.event is not None:
            self.event.succeed()
        connection = self.connection
        connection.waiting.popleft()
        Call(self.network.environment, connection.latency, self._there)
        if connection.waiting:
            following = connection.waiting[0]
            Call(self.network.environment, 0.0, lambda _: self.network.start(following))

    def _there(self, _: simpy.Event) -> None:
        self.network.bytes_arrived += self.nbytes
        self.network.under_way -= 1
        self.arrived(self)


class Connection:
    """What carries the messages from one node to another, one at a time."""

    __slots__ = ("latency", "path", "waiting")

    def __init__(self, path: tuple[Link, ...], latency: float) -> None:
        self.path = path
        self.latency = latency
        self.waiting: deque[Transfer] = deque()  # the first one is under way


class Network:
    """Carries messages between nodes. `host_of[rank]` is the host of a node."""

    def __init__(
        self,
        environment: simpy.Environment,
        host_of: list[int],
        bandwidth: float | None,
        latency: float,
        overhead: float,
    ) -> None:
        """Bandwidth in bytes/s per direction and host (None: unlimited); latency and overhead in s."""
        self.environment = environment
        self.flows = Flows(environment)
        self.host_of = host_of
        self.latency = latency
        self.overhead = overhead
        self.bytes_sent = self.bytes_arrived = 0
        self.under_way = 0  # messages
        hosts = sorted(set(host_of)) if bandwidth is not None else []
        self.up = {host: Link(f"host {host}'s up-link", bandwidth or 0.0) for host in hosts}
        self.down = {host: Link(f"host {host}'s down-link", bandwidth or 0.0) for host in hosts}
        self.ready = [0.0] * len(host_of)  # when each sender has done with its messages' overheads
        self._connections: dict[tuple[int, int], Connection] = {}

    def send(
        self, sender: int, to: int, nbytes: int, message: Any, arrived: Callable[[Transfer], object]
    ) -> Transfer:
        """Send a message of `nbytes`; `arrived` is called with the transfer when it is there."""
        transfer = Transfer(self, self.connection(sender, to), nbytes, message, arrived)
        self.bytes_sent += nbytes
        self.under_way += 1
        if self.overhead:
            now = self.environment.now
            self.ready[sender] = max(now, self.ready[sender]) + self.overhead
            Call(self.environment, self.ready[sender] - now, lambda _: self._enqueue(transfer))
        else:
            self._enqueue(transfer)
        return transfer

    def connection(self, sender: int, to: int) -> Connection:
        """What carries the messages from one rank to another."""
        connection = self._connections.get((sender, to))
        if connection is None:
            connection = self._connections[sender, to] = self._connect(self.host_of[sender], self.host_of[to])
        return connection

    def _connect(self, source: int, target: int) -> Connection:
        if source == target:
            return Connection((), 0.0)
        return Connection((self.up[source], self.down[target]) if self.up else (), self.latency)

    def _enqueue(self, transfer: Transfer) -> None:
        waiting = transfer.connection.waiting
        waiting.append(transfer)
        if len(waiting) == 1:
            self.start(transfer)

    def start(self, transfer: Transfer) -> None:
        """Let a message flow whose turn it is."""
        path = transfer.connection.path
        if path and transfer.nbytes:
            self.flows.start(path, transfer.nbytes, transfer.gone)
        else:
            transfer.gone()
