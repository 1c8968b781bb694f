"""A port of a real run that writes down what its node was told, and in which order.

All that a node does follows from the scenario, its random numbers, and the order in which messages are taken
in, events happen and activities go on; and from the times and counts that it was told. With these the
simulator repeats the run (simulator/replay.py). Everything here is called in the turn of an activity.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from math import nan
from struct import Struct
from types import coroutine
from typing import Any

import numpy as np

from lockstep.job.ending import Count
from lockstep.job.events import Event
from lockstep.job.port import Arrival, PassOf, Port, Work
from lockstep.strategies.node import Collective, Group, Message, Vector

_PACK = Struct("=ihhiiid").pack
_FIELDS = ("activity", "word", "kind", "peer", "number", "version", "answer")
_TYPE = np.dtype(list(zip(_FIELDS, ("i4", "i2", "i2", "i4", "i4", "i4", "f8"), strict=True)))


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
        rows = np.frombuffer(bytes(self._packed[:count]), _TYPE)
        del self._packed[:count]
        self.taken += count
        return rows, list(self._names)


class RecordedPort:
    """See `job.port.Port` for what each member means, and `analysis.entries.Entry` for what is logged."""

    def __init__(self, port: Port, device: str) -> None:
        """device: what computes here, for the log."""
        self.log = Interleaving()
        self._port, self.clock, self._device = port, port.clock, device
        self._started = self._events = 0  # so far: activities beside the program, events
        self._messages: Counter[tuple[str, int]] = Counter()  # by kind and sender

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
            message = arrival.message
            key = message.kind, message.sender
            self._messages[key] += 1
            self.log.note("message", message.kind, -1, message.sender, self._messages[key], message.version)
            take_in(arrival)

        return logged

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

    def cost(self, nbytes: int, codec: str = "", decoding: bool = False) -> float:
        return self._port.cost(nbytes, codec, decoding)

    def collective(
        self, program: Collective, vector: Vector, among: Group | None = None
    ) -> Awaitable[Vector] | None:
        return self._port.collective(program, vector, among)

    async def all_reduce(self, vector: Vector) -> tuple[Vector, int]:
        total = await self._port.all_reduce(vector)
        self.log.note("all_reduce")
        return total

    def show(self, version: int, part: Vector) -> None:
        self._port.show(version, part)

    def start(self, program: Coroutine[Any, Any, None]) -> None:
        self._started += 1
        self._port.start(self.run(program, self._started))
