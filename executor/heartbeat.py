"""A process's line to the hub: what it says of itself, and hears of the run, twice a second, in a thread.

The same thread writes to disk what the process has recorded, and notices if the process, or the hub, has
stood still.
"""

import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import Any

import psutil
import zmq

from lockstep.executor.hub import NAME
from lockstep.executor.sockets import Doors, Place
from lockstep.executor.watchdog import LEAST_S, Status

_BEAT_S = 0.5
_GAP_S = 1.0  # that the thread is late after the process has stood still, or has had no processor
_STOPPED_S = 0.1  # the same, if the system says that it was stopped
_GRACE_S = 5.0  # for a process to hear that it is to end
_TOLD_S = 2.0  # for the hub to say that it has heard of a failure
BAD_INPUT = "has bad input"  # the file by which a process of a host notes that it has complained of that
ORPHANED = 3  # the exit code of a process whose hub gives no sign


def repr_line(error: BaseException) -> str:
    """An error in one line: its type and what it says."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


class Heartbeat:
    """One process's. `begin` it, and say with `look` what the process is at."""

    def __init__(self, rank: int, place: Place, endpoint: str, deadline_s: float | None = None) -> None:
        self.over = Event()  # the run ends well for this process
        self.look: Callable[[], Status] = Status
        self.write: Callable[[], None] = lambda: None  # puts to disk what has been recorded
        self._folder = place.folder
        self._deadline_s = deadline_s or LEAST_S
        self._doors = Doors(str(rank), place)
        self._socket = self._doors.connect(zmq.DEALER, NAME, endpoint, str(rank).encode())
        self._talking = Lock()
        self._continued = self._ended = False
        self._stood_s = 0.0
        self.asked_to_end = ""
        """Why, once it has been."""
        self._heard = time.monotonic()
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Start to beat; from the main thread."""
        with suppress(ValueError):  # another thread: the gap alone tells
            signal.signal(signal.SIGCONT, self._note_continued)
        self._tell({"about": {"host": socket.gethostname(), "pid": os.getpid()}, "status": {}})
        self._thread = Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def fail(self, line: str, details: str) -> bool:
        """Tell the hub that this process fails, and why; whether it has heard that."""
        return self._until_heard({"failure": [time.monotonic(), line, details]})

    def end_all(self, why: str) -> bool:
        """Tell the hub that the run ends badly; whether it has heard that."""
        return self._until_heard({"end": why})

    def end(self) -> None:
        """This process has nothing more to do; it is still there."""
        self._ended = True
        self._tell({"status": self._status().to_json()})

    def close(self) -> None:
        """Beat no more."""
        self.over.set()
        if self._thread is not None:
            self._thread.join()
        self._doors.close()

    def _note_continued(self, *_: Any) -> None:
        self._continued = True

    def _status(self) -> Status:
        return replace(self.look(), stood_s=self._stood_s, ended=self._ended)

    def _beat(self) -> None:
        last = time.monotonic()
        while not self.over.wait(_BEAT_S):
            now = time.monotonic()
            late = now - last - _BEAT_S
            if late > (_STOPPED_S if self._continued else _GAP_S):
                self._stood_s += late
                self._heard = now
            self._continued = False
            self._write()
            self._tell({"status": self._status().to_json()})
            self._listen()
            if self.asked_to_end:
                self._obey(self.asked_to_end)
                return
            if time.monotonic() - self._heard > self._deadline_s + _BEAT_S:
                self._leave()
            last = time.monotonic()

    def _write(self) -> None:
        try:
            self.write()
        except Exception as error:  # such as a full disk: what cannot be kept need not be measured
            self.fail(repr_line(error), traceback.format_exc())
            os._exit(1)

    def _tell(self, what: dict[str, Any]) -> None:
        with self._talking:
            self._socket.send(json.dumps(what).encode())

    def _listen(self, wait_ms: int = 0) -> bool:
        """Take in what the hub has said; whether that was anything."""
        heard = False
        with self._talking:
            while self._socket.poll(0 if heard else wait_ms):
                said, _ = self._socket.recv_multipart()
                self.asked_to_end = json.loads(said)["end"]
                self._heard, heard = time.monotonic(), True
        return heard

    def _until_heard(self, what: dict[str, Any]) -> bool:
        self._listen()
        self._tell(what)
        return self._listen(int(1000 * _TOLD_S))

    def _obey(self, why: str) -> None:
        """End this process; a torchrun ends those of its own host only, and slowly."""
        if self.over.is_set():
            return
        if not (self._folder / BAD_INPUT).exists():  # else that is said already
            self._say(f"the run ends: {why}")
        with suppress(psutil.Error):
            for sibling in psutil.Process(os.getppid()).children():
                if sibling.status() == psutil.STATUS_STOPPED:
                    sibling.kill()
        os.kill(os.getpid(), signal.SIGTERM)
        if not self.over.wait(_GRACE_S):
            os._exit(128 + signal.SIGTERM)  # it waits where it hears no signal

    def _leave(self) -> None:
        """End this process at once: nobody is there to report to."""
        silent = time.monotonic() - self._heard
        self._say(f"the process that watches the run has given no sign for {silent:.0f} s: the run ends")
        os._exit(ORPHANED)

    def _say(self, what: str) -> None:
        """Say it once on this host."""
        with suppress(OSError):
            os.close(os.open(self._folder / "said", os.O_CREAT | os.O_EXCL, 0o600))
            print(f"error: {socket.gethostname()}: {what}", file=sys.stderr, flush=True)
