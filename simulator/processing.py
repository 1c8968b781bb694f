"""What messages take of the cores: a process that sends, a kernel that copies, a process that takes in.

A message's overheads are seconds of its sender and its receiver, one message after another at each. They keep
a core busy for `overheads` core-seconds of their sum; for the rest the process only waits.
At each of its two ends it takes `per_message` + `per_byte` x bytes core-seconds more while it is on its way
(and `per_large_message`, if it has more than `large` bytes), one message after another on each connection; it
is there when these are done and it has arrived. An end whose process had no message for a while takes longer:
`cold`. Whoever works on a machine shares its cores (cores.py): an idle machine's messages take no longer than
without them.

Bytes are dealt with as they come. So while a message is on its way an end takes the part of a core with which
it gets done when the network does, as far as that is known when the message begins. Where the network is done
sooner, a message waits for an end only if the cores have kept that end from its part.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lockstep.scenarios.network import Processing
from lockstep.simulator.cores import Cores, InTurn
from lockstep.simulator.links import Flow, Link

if TYPE_CHECKING:
    from lockstep.simulator.network import Connection, Transfer

_Path = tuple[Link, Link]  # the cores, and what one process can have of them
_End = tuple[int, _Path]  # of a process


def _nothing() -> None:
    """Nobody asks when an overhead begins."""


class MessageCores:
    """The cores on which messages are dealt with; `handed_over` is told of each that is there and done."""

    def __init__(
        self,
        cores: Cores,
        costs: Processing,
        message_overhead: float,
        receive_overhead: float,
        handed_over: "Callable[[Transfer], object]",
    ) -> None:
        self._cores, self._costs = cores, costs
        self._message_overhead, self._receive_overhead = message_overhead, receive_overhead
        both = message_overhead + receive_overhead
        self._busy = 1.0 if costs.overheads is None or not both else min(1.0, costs.overheads / both)
        self._handed_over = handed_over
        self._last: dict[int, float] = {}  # when a process last had to do with a message
        self._ends: dict[Connection, tuple[_End, _End]] = {}
        self._works: dict[Transfer, list[Flow]] = {}  # of messages on their way, what they wait for
        self._arrived: dict[Transfer, None] = {}  # those of them that the network is done with
        self._order: dict[Connection, deque[Transfer]] = {}  # of messages that none behind may overtake
        self._turns: dict[tuple[int, bool], InTurn] = {}  # to send, to take in: neither waits for the other

    def send(self, sender: int, transfer: "Transfer", enqueue: "Callable[[Transfer], object]") -> None:
        """Let a message take its sender's time, after those before it."""
        connection = transfer.connection
        if connection not in self._ends:
            first, second = ((rank, self._cores.beside(rank)) for rank in (sender, connection.to))
            self._ends[connection] = first, second
        self._in_turn(sender, True, self._message_overhead, partial(enqueue, transfer))

    def begin(self, transfer: "Transfer") -> None:
        """A message flows from now on."""
        ends = self._ends[transfer.connection]
        warm = self._costs.at_an_end(transfer.nbytes)
        lasts = self._lasts_s(transfer)
        self._works[transfer] = []
        self._order.setdefault(transfer.connection, deque()).append(transfer)
        for rank, (cores, beside) in ends:
            work = warm + self._cold(rank)
            if work:
                part = Link(beside.id, work / lasts) if lasts > work else beside
                self._work(transfer, (cores, part), work)

    def _lasts_s(self, transfer: "Transfer") -> float:
        """How long a message is on its way, if whoever is on its links stays there."""
        return max(
            [(1 + len(link.flows)) * link.alone_s(transfer.nbytes) for link in transfer.path], default=0.0
        )

    def _work(self, transfer: "Transfer", path: _Path, work: float) -> None:
        flow = self._cores.flows.start(path, work, lambda: self._worked(transfer, flow))
        self._works[transfer].append(flow)

    def _worked(self, transfer: "Transfer", flow: Flow) -> None:
        works = self._works.get(transfer, [])
        if flow in works:  # else the message did not wait for it
            works.remove(flow)
            if not works:
                self._take_in(transfer.connection)

    def arrived(self, transfer: "Transfer") -> None:
        """A message has passed the network."""
        self._arrived[transfer] = None
        works, now = self._works[transfer], self._cores.environment.now
        for flow in list(works):
            cores, part = flow.path
            if part.sustained < 1:  # of a core
                works.remove(flow)
                if flow.owner is cores:
                    left = flow.left(now)
                    self._cores.flows.cancel(flow)
                    self._work(transfer, (cores, Link(part.id, 1.0)), left)
        if not works:
            self._take_in(transfer.connection)

    def _take_in(self, connection: "Connection") -> None:
        """Take in the messages of a connection that are there and done with, in their order."""
        queue = self._order[connection]
        while queue and queue[0] in self._arrived and not self._works[queue[0]]:
            transfer = queue.popleft()
            del self._works[transfer], self._arrived[transfer]
            do = partial(self._handed_over, transfer)
            self._in_turn(connection.to, False, self._receive_overhead, do)

    def _cold(self, rank: int) -> float:
        """What a process takes besides, in core-seconds, because it had no message for a while."""
        now = self._cores.environment.now
        pause, self._last[rank] = now - self._last.get(rank, 0.0), now
        return self._costs.cold * pause / (pause + self._costs.cold_after)

    def _in_turn(self, rank: int, sending: bool, seconds: float, do: Callable[[], object]) -> None:
        """Do something after so many seconds of a process, which come after those asked for before."""
        if not seconds:
            do()
            return
        turn = self._turns.get((rank, sending))
        if turn is None:
            turn = self._turns[rank, sending] = InTurn(self._cores, rank)
        turn.do(seconds, self._busy * seconds, _nothing, do)
