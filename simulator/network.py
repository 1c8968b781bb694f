"""The network: messages between nodes, over the links of a topology.

From one node to another there is one connection, which carries one message at a time, in the order of
sending, as TCP does. A message waits for the sender's per-message overhead (one at a time per sender), then
for its turn on the connection, flows over the links between the two hosts, and arrives one latency after its
last byte has left. It is handed over after the receiver's per-message overhead (one at a time per receiver,
in the order of arrival).

Not modelled: packets, TCP's slow start and congestion control, loss, switch buffers. What headers cost
is taken off the links' capacities (goodput).
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from simulator.events import NORMAL, Aside, Call
from simulator.flows import Flows
from simulator.topology import Path, Topology


class Transfer:
    """A message on its way. Awaiting it waits until its last byte has left, which is at `left_at`."""

    __slots__ = (
        *("arrived", "callbacks", "connection", "event", "left_at", "message", "nbytes", "network", "start"),
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
        self.network = network
        self.connection = connection
        self.nbytes = nbytes
        self.message = message
        self.arrived = arrived
        self.start = network.environment.now
        self.left_at = float("inf")
        self.event: simpy.Event | None = None  # made only if somebody waits
        self.callbacks = [self._there]

    def __await__(self) -> Generator[simpy.Event, Any, None]:
        if self.left_at == float("inf"):
            self.event = self.event or simpy.Event(self.network.environment)
            yield self.event

    def gone(self) -> None:
        """The last byte has left: the next message may go, and this one arrives a latency later."""
        self.left_at = self.network.environment.now
        if self.event is not None:
            self.event.succeed()
        connection = self.connection
        connection.waiting.popleft()
        self.network.environment.schedule(self, NORMAL, connection.latency)  # type: ignore[arg-type]
        if connection.waiting:
            following = connection.waiting[0]
            Call(self.network.environment, 0.0, lambda _: self.network.start(following))

    def _there(self, event: Any) -> None:
        if self.network.receive_overhead:
            self.network.take_in(self.connection.to, self._handed_over)
        else:
            self._handed_over(event)

    def _handed_over(self, _: Any) -> None:
        self.network.bytes_arrived += self.nbytes
        self.network.messages -= 1
        self.arrived(self)


class Connection:
    """What carries the messages to the node `to` from one other, one at a time."""

    __slots__ = ("latency", "path", "to", "waiting")

    def __init__(self, to: int, path: Path, latency: float) -> None:
        self.to = to
        self.path = path
        self.latency = latency
        self.waiting: deque[Transfer] = deque()  # the first one is under way


class Network:
    """Carries messages between nodes. `host_of[rank]` is the host of a node."""

    def __init__(
        self,
        environment: simpy.Environment,
        topology: Topology,
        host_of: Sequence[int],
        message_overhead: float = 0.0,
        receive_overhead: float = 0.0,
    ) -> None:
        """Overheads in s: what a message takes of its sender's and of its receiver's time."""
        self.environment = environment
        self.flows = Flows(environment)
        self.topology = topology
        self.host_of = host_of
        self.message_overhead = message_overhead
        self.receive_overhead = receive_overhead
        self.bytes_sent = self.bytes_arrived = 0
        self.messages = 0  # under way
        self.ready = [0.0] * len(host_of)  # when each sender has done with its messages' overheads
        self._taken_in = [0.0] * len(host_of)  # and each receiver
        self._connections: dict[tuple[int, int], Connection] = {}

    def send(
        self, sender: int, to: int, nbytes: int, message: Any, arrived: Callable[[Transfer], object]
    ) -> Transfer:
        """Send a message of `nbytes`; `arrived` is called with the transfer when it is there."""
        transfer = Transfer(self, self.connection(sender, to), nbytes, message, arrived)
        self.bytes_sent += nbytes
        self.messages += 1
        if self.message_overhead:
            now = self.environment.now
            self.ready[sender] = max(now, self.ready[sender]) + self.message_overhead
            Call(self.environment, self.ready[sender] - now, lambda _: self._enqueue(transfer))
        else:
            self._enqueue(transfer)
        return transfer

    def connection(self, sender: int, to: int) -> Connection:
        """What carries the messages from one rank to another."""
        connection = self._connections.get((sender, to))
        if connection is None:
            path, latency = self.topology.path(self.host_of[sender], self.host_of[to])
            connection = self._connections[sender, to] = Connection(to, path, latency)
        return connection

    def take_in(self, receiver: int, handed_over: Callable[[simpy.Event], object]) -> None:
        """Let a message that has arrived take its receiver's time, after those before it."""
        now = self.environment.now
        self._taken_in[receiver] = max(now, self._taken_in[receiver]) + self.receive_overhead
        Call(self.environment, self._taken_in[receiver] - now, handed_over)

    def under_way(self) -> bool:
        """Whether a message is, or anything will happen but asides: the background's, and bursts' ends."""
        return self.bytes_sent != self.bytes_arrived or any(
            not isinstance(event, Aside) for *_, event in self.environment._queue
        )

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
