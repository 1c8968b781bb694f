"""How the processes of a run reach each other, so that nobody else does.

- On one host: Unix sockets in the run's private folder (folder.py). The kernel lets nobody else in, and they
  are as fast as TCP.
- On a testbed: TCP in the testbed's network, which nobody else is in.
- On several hosts: TCP with CURVE: both ends prove that they know the run's key (keys.py), what travels is
  encrypted, and every message tells which process sent it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from lockstep.executor.keys import Keys

_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
Context = zmq.Context["zmq.Socket[bytes]"]


@dataclass(frozen=True)
class Place:
    """Where a process listens: in a folder, or at an IPv4 `address` (and one of `ports`, if they matter)."""

    folder: Path
    address: str | None = None
    ports: range | None = None
    keys: Keys | None = None


@dataclass
class Door:
    """A socket that others connect to, and at which endpoint."""

    socket: Any
    endpoint: str
    _names: Mapping[str, str] | None = None  # of the processes of the run, by their public keys
    _strangers: Any = None

    def sender(self, frame: Any) -> str | None:
        """The name of the process that a frame is from; None where only the run's own get in at all."""
        return self._names[frame.get("User-Id")] if self._names else None

    @property
    def tells_senders(self) -> bool:
        """Whether `sender` knows."""
        return self._names is not None

    def refused(self) -> int:
        """How many connections have been refused since this was asked last."""
        count = 0
        while self._strangers is not None and self._strangers.poll(0):
            recv_monitor_message(self._strangers)
            count += 1
        return count


class Doors:
    """The sockets of one process, which has a `name`."""

    def __init__(self, name: str, place: Place) -> None:
        self.context: Context = zmq.Context()
        self._name, self._place = name, place
        self._doorman: ThreadAuthenticator | None = None

    def listen(self, kind: int, name: str, most_bytes: int) -> Door:
        """Open a door of that name, to messages of so many bytes in a frame."""
        socket, place = self._socket(kind), self._place
        socket.maxmsgsize = most_bytes
        if place.address is None:
            endpoint = f"ipc://{place.folder / name}"
            socket.bind(endpoint)
            return Door(socket, endpoint)
        if place.keys is None:
            return Door(socket, _bind(socket, place.address, place.ports))
        if self._doorman is None:
            self._doorman = ThreadAuthenticator(self.context)
            self._doorman.start()
            self._doorman.configure_curve_callback("*", place.keys)
        socket.curve_server = True
        _, socket.curve_secretkey = place.keys.pair(self._name)
        strangers = socket.get_monitor_socket(_FAILED)
        return Door(socket, _bind(socket, place.address, place.ports), place.keys.names, strangers)

    def connect(self, kind: int, name: str, endpoint: str, identity: bytes = b"") -> Any:
        """A socket to the door of the process `name`."""
        socket, keys = self._socket(kind), self._place.keys
        if identity:
            socket.identity = identity
        if keys is not None:
            socket.curve_publickey, socket.curve_secretkey = keys.pair(self._name)
            socket.curve_serverkey = keys.public(name)
        socket.connect(endpoint)
        return socket

    def inside(self, door: Any) -> Any:
        """A socket of this process to a door of its own."""
        endpoint = f"inproc://{id(door)}"
        door.bind(endpoint)
        socket = self._socket(zmq.PUSH)
        socket.connect(endpoint)
        return socket

    def close(self) -> None:
        """Close all; what has not been sent by now is dropped."""
        if self._doorman is not None:
            self._doorman.stop()
        self.context.destroy(linger=0)

    def _socket(self, kind: int) -> Any:
        socket = self.context.socket(kind)
        socket.set_hwm(0)
        socket.setsockopt(zmq.LINGER, 0)
        return socket


def _bind(socket: Any, address: str, ports: range | None) -> str:
    """Bind to a free port, of `ports` if they are given, and say where. Raises OSError if none is free."""
    if ports is None:
        return f"tcp://{address}:{socket.bind_to_random_port(f'tcp://{address}')}"
    for port in ports:
        try:
            socket.bind(f"tcp://{address}:{port}")
        except zmq.ZMQError:
            continue
        return f"tcp://{address}:{port}"
    raise OSError(f"no port of {ports.start} to {ports.stop - 1} is free on {address}")
