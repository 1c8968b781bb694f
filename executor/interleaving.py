"""A port of a real run that writes down what its node was told, and in which order.

All that a node does follows from the scenario, its random numbers, and the order in which messages are taken
in, events happen and activities go on; and from the times and counts that it was told. With these the
simulator repeats the run (simulator/replay.py). Everything here is called in the turn of an activity.
"""

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from math import nan
from pathlib import Path
from struct import Struct
from types import coroutine
from typing import Any

import numpy as np

import lockstep.analysis.streams as streams
from lockstep.analysis.entries import ANEW, LIFE
from lockstep.analysis.streams import ENTRY
from lockstep.job.ending import Count
from lockstep.job.events import Event
from lockstep.job.port import Arrival, Cost, PassOf, Port, Work
from lockstep.strategies.node import Collective, Group, Message, Vector

_PACK = Struct("=ihhiiid").pack  # as ENTRY


class Interleaving:
    """One node's log, packed: 28 bytes an entry."""

    def __init__(self) -> None:
        self.taken = 0  # bytes that have been drained
        self._packed = bytearray()
        self._names: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        """What all entries so far take."""
        return self.taken + len(self._packed)

    def note(
        self,
        word: str,
        kind: str = "",
        activity: int = -1,
        peer: int = -1,
        number: int = -1,
        version: int = -1,
        answer: float = nan,
    ) -> None:
        """Add an entry."""
        code = self._names.setdefault
        count = len(self._names)
        self._packed += _PACK(
            activity, code(word, count), code(kind, len(self._names)), peer, number, version, answer
        )

    def drain(self) -> tuple[np.ndarray, list[str]]:
        """Take the entries out, another thread adding some: rows, and the names of words and kinds."""
        count = len(self._packed)
        rows = np.frombuffer(bytes(self._packed[:count]), ENTRY)
        del self._packed[:count]
        self.taken += count
        return rows, list(self._names)


class DurableInterleaving(Interleaving):
    """The log of a node that may be killed: an entry is on disk before anything comes of it.

    So what others were sent by the dead can be repeated. A signal may raise out of a write that has been
    made: each has its place in the file, so that an entry is there once, however often it is written.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._files = [os.open(file, flags, 0o600) for file in streams.packed_log(folder, rank)]
        self._written = 0  # names

    def note(self, *args: Any, **more: Any) -> None:
        """As in any log. Raises OSError."""
        super().note(*args, **more)
        entries, names = self._files
        if len(self._names) > self._written:
            os.pwrite(names, "".join(f"{name}\n" for name in self._names).encode(), 0)
            self._written = len(self._names)
        os.pwrite(entries, self._packed, self.taken)
        super().drain()

    def drain(self) -> tuple[np.ndarray, list[str]]:
        """Nothing: it has all been written."""
        return np.empty(0, ENTRY), []

    def close(self) -> None:
        """Close its files, if that is not left to the end of the process."""
        for file in self._files:
            os.close(file)


class RecordedPort:
    """See `job.port.Port` for what each member means, and `analysis.entries.Entry` for what is logged."""

    def __init__(self, port: Port, device: str, log: Interleaving | None = None) -> None:
        """device: what computes here, for the log."""
        self.log = log or Interleaving()
        self._port, self.clock, self._device = port, port.clock, device
        self._started = self._events = 0  # so far: activities beside the program, events
        self._messages: Counter[tuple[str, int, int]] = Counter()  # by kind, sender and connection
        self.connection: Callable[[int], int] = lambda to: 0
        """Which connection to another node there is, if nodes begin anew."""
        self._connections: dict[int, int] = {}  # as noted, but for first ones

    @coroutine  # passes on what the program awaits, without an object for each
    def run(self, program: Coroutine[Any, Any, None], activity: int = 0) -> Generator[Any, Any, None]:
        """Run the program of the node, or a further one, and log when it goes on."""
        self.log.note("begin", self._device, activity)
        failure: BaseException | None = None
        with suppress(StopIteration):
            while True:
                awaited = program.send(None) if failure is None else program.throw(failure)
                try:
                    yield awaited
                    failure = None
                except BaseException as error:
                    failure = error
                self.log.note("go on" if failure is None else "retire", activity=activity)

    def taking_in(self, take_in: Callable[[Arrival], None]) -> Callable[[Arrival], None]:
        """A node's way to take a message in, which logs that."""

        def logged(arrival: Arrival) -> None:
            message, connection = arrival.message, getattr(arrival, "connection", 0)
            key = message.kind, message.sender, connection
            self._messages[key] += 1
            by = float(connection) if connection else nan
            self.log.note(
                "message", message.kind, -1, message.sender, self._messages[key], message.version, by
            )
            take_in(arrival)

        return logged

    def hearing(self, take_in: Callable[[Arrival], None]) -> Callable[[Arrival], None]:
        """The same for what the failure detector says."""

        def logged(arrival: Arrival) -> None:
            self.log.note("heard", arrival.message.kind, peer=arrival.message.sender)
            take_in(arrival)

        return logged

    def begin_anew(self, number: int, step: int, now: float) -> None:
        """Another node stands on this port from now on, in its so-manieth life."""
        self._started = self._events = 0
        self._connections = {}
        self.log.note(LIFE, ANEW, peer=number, number=step, version=0, answer=now)

    def counting(self, count: Count) -> Count:
        """What the node's `Ending` counts with, which logs the sums."""

        def logged(name: str) -> int:
            sum_ = count(name)
            self.log.note("count", name, number=sum_)
            return sum_

        return logged

    def _noted(self, event: Event, word: str) -> Event:
        """Log when an event of this port happens, before anything comes of it."""
        number = self._events
        self._events += 1
        event.then(lambda _: self.log.note(word, number=number))
        return event

    def tell_time(self) -> float:
        now = self._port.tell_time()
        self.log.note("time", answer=now)
        return now

    def post(self, to: int, message: Message) -> Awaitable[None]:
        if (connection := self.connection(to)) != self._connections.get(to, 0):
            self._connections[to] = connection
            self.log.note("connection", peer=to, number=connection)
        return self._port.post(to, message)

    def wait(self, seconds: float, working: bool = False) -> Event:
        return self._noted(self._port.wait(seconds, working), "wait")

    def compute(
        self, parameters: Any, step: int, down_to: Sequence[int] = (), of: PassOf | None = None
    ) -> Work:
        work = self._port.compute(parameters, step, down_to, of)
        self._noted(work.done, "compute")
        for part in work.parts:
            self._noted(part, "part")
        return work

    def cost(self, nbytes: int, codec: str = "", decoding: bool = False) -> Cost:
        return self._port.cost(nbytes, codec, decoding)

    def collective(
        self, program: Collective, vector: Vector, among: Group | None = None, beside: int = 0
    ) -> Awaitable[Vector] | None:
        return self._port.collective(program, vector, among, beside)

    async def all_reduce(self, vector: Vector) -> tuple[Vector, int]:
        total = await self._port.all_reduce(vector)
        self.log.note("all_reduce")
        return total

    def show(self, version: int, part: Vector) -> None:
        self._port.show(version, part)

    def start(self, program: Coroutine[Any, Any, None]) -> None:
        self._started += 1
        self._port.start(self.run(program, self._started))
