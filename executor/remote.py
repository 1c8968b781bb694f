"""What a process of another host has of the host of rank 0, through the hub: the store, and files to leave.

torch.distributed's own store over TCP is anyone's who can connect to it.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import zmq

from lockstep.executor.hub import MOST_BYTES, NAME, Answer, files_in
from lockstep.executor.sockets import Doors, Place
from lockstep.executor.stores import LookedAt, Store

_PIECE = MOST_BYTES // 2
_GONE_S = 30.0  # without an answer
_LOOK_MS = 200  # how often it hears signals


class HubGone(RuntimeError):
    """The process to which all report does not answer."""


class RemoteStore(LookedAt):
    """A store of torch.distributed's at the hub; raises HubGone."""

    def __init__(self, rank: int, place: Place, endpoint: str) -> None:
        super().__init__()
        self._doors = Doors(str(rank), place)
        self._socket = self._doors.connect(zmq.DEALER, NAME, endpoint, f"{rank}/store".encode())
        self._asking = Lock()

    def set(self, key: str, value: str | bytes) -> None:  # noqa: D102
        self._ask("set", key, body=value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:  # noqa: D102
        self.wait([key])
        return self._ask("get", key)[1]

    def add(self, key: str, number: int) -> int:  # noqa: D102
        return int(self._ask("add", key, number)[0])

    def check(self, keys: Sequence[str]) -> bool:  # noqa: D102
        return bool(self._ask("check", *keys)[0])

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:  # noqa: D102
        return self._ask("compare_set", key, expected, desired)[1]

    def leave_privately(self, name: str, file: Path) -> None:
        """As `leave`, for a process of the hub's own host, whose records are there."""

    def leave(self, name: str, file: Path) -> None:
        """Copy a file of this host to the hub's."""
        with open(file, "rb") as content:
            start = 0
            while (piece := content.read(_PIECE)) or not start:
                self._ask("file", name, start, body=piece)
                start += max(1, len(piece))
        self._ask("file", name, -1)

    def close(self) -> None:
        """Ask no more."""
        self._doors.close()

    def _ask(self, *call: Any, body: bytes = b"") -> tuple[Any, bytes]:
        with self._asking:
            self._socket.send_multipart([json.dumps({"call": call}).encode(), body])
            end = time.monotonic() + _GONE_S
            while not self._socket.poll(_LOOK_MS):
                if time.monotonic() > end:
                    raise HubGone(f"the host where the processes report has not answered for {_GONE_S:.0f} s")
            said, found = self._socket.recv_multipart()
        return json.loads(said), found


def answers(store: Store, folder: Path, kept: Path) -> Answer:
    """How the hub answers: with this store; records go to the folder `kept`, other files to the first."""
    take = files_in(folder, kept)
    words: dict[str, Callable[..., Any]] = {
        "set": store.set,
        "get": store.get,
        "add": store.add,
        "check": lambda *keys: store.check(list(keys)),
        "compare_set": store.compare_set,
        "file": take,
    }

    def answer(call: Sequence[Any], body: bytes) -> tuple[Any, bytes]:
        word, *given = call
        found = words[word](*given, body) if word in ("set", "file") else words[word](*given)
        return (None, found) if isinstance(found, bytes) else (found, b"")

    return answer
