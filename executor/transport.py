"""Messages between processes, over ZeroMQ.

Every process binds one PULL socket, its inbox, and connects a PUSH socket to each peer it sends to: from one
process to another, messages are one TCP stream and keep their order. Large bodies are neither copied nor
changed on the way. What is in front of a body is a line of JSON. Why ZeroMQ: docs/design.md.
"""

import json
import time
from collections.abc import Awaitable, Generator, Sequence
from threading import Lock
from typing import Any

import torch
import zmq

from executor.devices import to_host

_COPY_BELOW = 1 << 16  # bytes; a small body is cheaper to copy than to track
_CONNECT_S = 60.0  # for all connections of a process
_LOOK_MS = 50  # how often a process that waits for connections hears signals
# A header: kind, sender, version, batches, part, weight, sources, when it was sent.
_HEADER = [str, int, int, int, int, float, list, float]
_write = json.JSONEncoder(separators=(",", ":")).encode  # what json.dumps does, less a look at its options
_read = json.JSONDecoder().raw_decode


class Sent(Awaitable[None]):
    """Awaiting it blocks until the last byte of a message has been handed to the kernel."""

    def __init__(self, tracker: Any = None) -> None:
        self.tracker = tracker

    def __await__(self) -> Generator[Any, Any, None]:
        if self.tracker is not None:
            self.tracker.wait()
        return
        yield


class Transport:
    """One process's sockets. Addresses are exchanged through a torch.distributed store."""

    def __init__(self, store: torch.distributed.Store, rank: int, host: str, dtype: torch.dtype) -> None:
        self.store = store
        self.rank = rank
        self.dtype = dtype
        self.context = zmq.Context()
        self.inbox = self.context.socket(zmq.PULL)
        self.inbox.set_hwm(0)
        port = self.inbox.bind_to_random_port(f"tcp://{host}")
        store.set(f"address/{rank}", f"tcp://{host}:{port}")
        self._peers: dict[int, zmq.Socket[bytes]] = {}
        self._timeout_ms = -1  # for ever
        self._sending = Lock()  # sockets are not for several threads at once
        self.sent = 0  # messages so far

    def send(self, to: int, header: Sequence[Any], body: torch.Tensor | None) -> Sent:
        """Queue a message: a header, its values of the types of `_HEADER`, and perhaps a body.

        A body is a flat vector of the workload's type, or the bytes of an encoded one: that is said in front,
        with the number of bytes (−1: no body). A large body is a frame of its own.
        """
        nbytes = -1 if body is None else body.nbytes
        front = _write([nbytes, body is not None and body.dtype == torch.uint8, *header]).encode() + b"\n"
        if body is None:
            return self._send(to, front)
        data = to_host(body).view(torch.uint8).numpy()
        if nbytes < _COPY_BELOW:
            return self._send(to, front + data.tobytes())
        return self._send(to, front, data.data)

    def _send(self, to: int, front: bytes, data: memoryview | None = None) -> Sent:
        with self._sending:
            self.sent += 1
            peer = self._peer(to)
            if data is None:
                peer.send(front)
                return Sent()
            peer.send(front, zmq.SNDMORE)
            return Sent(peer.send(data, copy=False, track=True))

    def receive(self, timeout_s: float) -> tuple[list[Any], torch.Tensor | None] | None:
        """The next message, or None if there is none in time; ValueError if what came is not one."""
        timeout_ms = max(0, round(timeout_s * 1000))
        if timeout_ms != self._timeout_ms:
            self._timeout_ms = timeout_ms
            self.inbox.rcvtimeo = timeout_ms
        try:
            front = self.inbox.recv()
        except zmq.Again:
            return None
        try:
            return self._parsed(front)
        except (ValueError, TypeError) as error:
            came = f"{front[:40]!r}, {len(front)} bytes"
            raise ValueError(f"no message of a run came in, but {came}: who else sends here?") from error

    def _parsed(self, front: bytes) -> tuple[list[Any], torch.Tensor | None]:
        end = front.index(b"\n")  # JSON has none
        (nbytes, encoded, *header), _ = _read(front[:end].decode())
        if list(map(type, header)) != _HEADER:
            raise ValueError(f"a header of {header}")
        if nbytes < 0:
            return header, None
        # Nobody changes a body in place, so the message's own memory will do.
        data: Any = bytearray(memoryview(front)[end + 1 :])
        if nbytes >= _COPY_BELOW:
            data = self.inbox.recv(copy=False).buffer if self.inbox.rcvmore else b""
        if len(data) != nbytes:
            raise ValueError(f"{len(data)} bytes instead of {nbytes}")
        dtype = torch.uint8 if encoded else self.dtype
        return header, torch.frombuffer(data, dtype=dtype) if nbytes else torch.empty(0, dtype=dtype)

    def connect(self, peers: Sequence[int]) -> None:
        """Connect to them, as they all do to this process, and wait until that is done: before any message.

        Otherwise first messages have to wait for connections, which many make at the same time. Raises
        TimeoutError.
        """
        for peer in peers:
            self._peer(peer).send(b"%d" % self.rank)
        missing, end = set(peers), time.monotonic() + _CONNECT_S
        while missing:
            if self.inbox.poll(_LOOK_MS):
                missing.remove(int(self.inbox.recv()))
            elif time.monotonic() > end:
                raise TimeoutError(
                    f"no connection from rank {min(missing)} within {_CONNECT_S:.0f} s: "
                    "does all TCP pass between the hosts?"
                )

    def _peer(self, rank: int) -> "zmq.Socket[bytes]":
        if rank not in self._peers:
            peer = self.context.socket(zmq.PUSH)
            peer.set_hwm(0)
            peer.setsockopt(zmq.LINGER, 0)
            peer.connect(self.store.get(f"address/{rank}").decode())
            self._peers[rank] = peer
        return self._peers[rank]

    def close(self) -> None:
        """Close all sockets; what has not been sent by now is dropped."""
        self.context.destroy(linger=0)
