"""Where the processes of a run report: a thread of the launcher, or of rank 0 under torchrun.

Every process tells its status twice a second, and hears whether the run ends (heartbeat.py). Processes of
other hosts have their store here too, and leave their files here (remote.py).
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import zmq

from lockstep.executor.sockets import Doors, Place
from lockstep.executor.watchdog import Stall, Status, Watchdog

NAME = "hub"
MOST_BYTES = 8 << 20  # of a frame; larger files come in pieces
_POLL_MS = 100
_LATE_S = 1.0  # that it may be late before nobody's silence says anything
_GAP_S = 2.0  # that this thread is late after it has itself stood still
Answer = Callable[[Sequence[Any], bytes], tuple[Any, bytes]]  # to a call from another host


@dataclass(frozen=True)
class Failure:
    """What ended a process: when (monotonic clock of its host), in one line, and with its traceback."""

    at: float
    line: str
    details: str


class Hub:
    """Hears the processes of a run. `close` ends it."""

    def __init__(self, place: Place, watchdog: Watchdog, answer: Answer | None = None) -> None:
        self.watchdog = watchdog
        self.failures: dict[int, Failure] = {}
        self.about: dict[int, Mapping[str, Any]] = {}  # of each process: its host, and its number there
        self.end = ""  # why the run ends badly, as the first process to tell has said
        self.stood_s = 0.0
        self.refused = 0
        self._answer = answer
        self._doors = Doors(NAME, place)
        self._door = self._doors.listen(zmq.ROUTER, NAME, MOST_BYTES)
        self._lock = Lock()
        self._closing = Event()
        self._looked = time.monotonic()
        self._thread = Thread(target=self._serve, name="hub", daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Where processes connect to."""
        return self._door.endpoint

    def expect(self, rank: int) -> None:
        """A process has been started."""
        with self._lock:
            self.watchdog.expect(rank, time.monotonic())

    def forget(self, rank: int) -> None:
        """A process is gone that was to go; what it may still have said is of no matter."""
        with self._lock:
            self.watchdog.forget(rank)

    def tell(self, why: str) -> None:
        """Tell all processes that the run ends badly, unless somebody has."""
        self.end = self.end or why

    def stall(self) -> Stall | None:
        """What holds the run up, if anything does for too long."""
        with self._lock:
            return self.watchdog.stall(time.monotonic())

    def silent(self, seconds: float) -> dict[int, float]:
        """Who gives no sign for so long, and for how long; nobody if this has stood still itself."""
        with self._lock:
            now = time.monotonic()
            return {} if now - self._looked > _LATE_S else self.watchdog.silent(now, seconds)

    def waited_for(self) -> list[int]:
        """Whom others have been waiting for, for some seconds."""
        with self._lock:
            return self.watchdog.waited_for(time.monotonic())

    @property
    def done_share(self) -> float:
        """How much of the run has been done, as the process says that is ahead."""
        return max((status.done_share for status in self.watchdog.status.copy().values()), default=0.0)

    def close(self) -> None:
        """End the thread, and close the sockets."""
        self._closing.set()
        self._thread.join()
        self._doors.close()

    def _serve(self) -> None:
        socket = self._door.socket
        while not self._closing.is_set():
            self.refused += self._door.refused()
            ready = socket.poll(_POLL_MS)
            now = time.monotonic()
            if now - self._looked > _GAP_S:
                self.stood_s += now - self._looked
                with self._lock:
                    self.watchdog.forgive(now)
            self._looked = now
            while ready and socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                self._hear(socket)

    def _hear(self, socket: Any) -> None:
        sender, *frames = socket.recv_multipart(copy=False)
        try:
            rank = int(bytes(sender.buffer).partition(b"/")[0])  # a process may have several sockets
            known = self._door.sender(frames[-1])
            if known not in (None, str(rank)) or not 0 <= rank < self.watchdog.processes:
                raise ValueError
            said = json.loads(bytes(frames[0].buffer))
            reply, body = self._reply(rank, said, bytes(frames[1].buffer) if len(frames) > 1 else b"")
        except OSError as error:
            self.tell(f"a file of rank {rank} cannot be written ({error.strerror or error})")
            return
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError):
            self.refused += 1  # none of ours talks like that; RuntimeError: the store's, or too deep
            return
        socket.send_multipart([sender, json.dumps(reply).encode(), body], copy=False)

    def _reply(self, rank: int, said: Any, body: bytes) -> tuple[Any, bytes]:
        if "call" in said:
            if self._answer is None:
                raise ValueError
            return self._answer(said["call"], body)
        if "failure" in said:
            self.failures.setdefault(rank, Failure(*said["failure"]))
        if "about" in said:
            self.about[rank] = said["about"]
        if "status" in said:
            with self._lock:
                self.watchdog.hear(rank, Status.from_json(said["status"]), time.monotonic())
        if said.get("end"):
            self.tell(said["end"])
        return {"end": self.end}, b""


def files_in(folder: Path, kept: Path) -> Callable[[str, int, bytes], None]:
    """Takes pieces of files from other hosts: (name, where it begins, bytes); a last one of none at −1.

    Records go to `kept`.
    """

    def take(name: str, start: int, piece: bytes) -> None:
        if "/" in name or name.startswith("."):
            raise ValueError(name)
        its = kept if name.startswith("rank-") else folder
        part = its / f".{name}.part"
        if start < 0:
            part.replace(its / name)
            return
        with open(part, "r+b" if start else "wb") as file:
            file.seek(start)
            file.write(piece)

    return take
