"""Messages between processes, over ZeroMQ.

Every process binds one PULL socket, its inbox, and connects a PUSH socket to each peer it sends to: from one
process to another, messages are one stream, keep their order, and are numbered; if either begins anew, so
does the stream. Large bodies are copied once at most where both ends are on one host (bodies.py), and else
neither copied nor changed on the way. What is in front of a body is a line of JSON. Why ZeroMQ:
docs/design.md; who can connect: sockets.py.
"""

import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Generator, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

import numpy as np
import torch
import zmq

from lockstep.executor.bodies import HEADER, Borrowed, Lent
from lockstep.executor.device_bodies import DeviceBodies
from lockstep.executor.devices import to_host
from lockstep.executor.sockets import Doors, Place
from lockstep.executor.stores import Store
from lockstep.workloads.streams import accelerated

_COPY_BELOW = 1 << 16  # bytes; a small body is cheaper to copy than to track
_CONNECT_S = 60.0  # for all connections of a process
_NOWHERE = -1  # the connection to who is gone
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)  # as enums they take longer than the question
_LOOK_MS = 50  # how often a process that waits for connections hears signals, and one that sends for news
# A message has the parameters, or a code of them; averages of an optimizer's state have more.
_MOST_TIMES, _MOST_MORE = 4, 1 << 20
# A header: kind, sender, version, batches, part, weight, sources, when it was sent.
_HEADER = [str, int, int, int, int, float, list, float]
_TYPES = (None, torch.uint8, torch.float16, torch.bfloat16)  # of a body; None: the workload's own
_write = json.JSONEncoder(separators=(",", ":")).encode  # what json.dumps does, less a look at its options
_read = json.JSONDecoder().raw_decode


class MessagesLost(RuntimeError):
    """Messages of a sender are missing, or have come twice."""


class Sent(Awaitable[None]):
    """Awaiting it blocks until the last byte of a message has been handed to the kernel.

    look: what is done meanwhile, now and then; it may raise, or say that this is not to be waited for.
    """

    def __init__(self, tracker: Any = None) -> None:
        self.tracker = tracker
        self.look: Callable[[], bool] | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        while self.tracker is not None and not self.tracker.done:
            with suppress(zmq.NotDone):
                self.tracker.wait(-1 if self.look is None else _LOOK_MS / 1000)
            if self.look is not None and self.look():
                return
        return
        yield


class Transport:
    """One process's sockets. Addresses are exchanged through a torch.distributed store."""

    def __init__(
        self,
        store: Store,
        rank: int,
        place: Place,
        initial: torch.Tensor,
        senders: Container[int],
        activation: int = 0,
    ) -> None:
        """initial: the parameters, which tell the type of bodies and how large they can be.

        senders: the ranks that messages may come from; activation: bytes that a body may have too.
        """
        self.store = store
        self.rank = rank
        self.dtype = initial.dtype
        self.most_bytes = max(_MOST_TIMES * initial.nbytes, activation) + _MOST_MORE
        self._senders = senders
        self._lent = Lent() if place.address is None and sys.platform == "linux" else None
        self._borrowed = Borrowed()
        self.on_devices: DeviceBodies | None = None
        """Where workers read each other's GPUs."""
        self._doors = Doors(str(rank), place)
        self._door = self._doors.listen(zmq.PULL, f"{rank}", self.most_bytes)
        self.inbox = self._door.socket
        self._own, self._wake = self._doors.inside(self.inbox), secrets.token_bytes()
        store.set(f"address/{rank}", self._door.endpoint)
        self._peers: dict[int, Any] = {}
        self._timeout_ms = -1  # for ever
        self._sending = Lock()  # sockets are not for several threads at once
        self.sent: Counter[int] = Counter()  # messages so far, by receiver
        self.taken: Counter[int] = Counter()  # and by sender
        self.life = 0  # how often this process has begun anew
        self.lives: Counter[int] = Counter()  # and others, as far as it has heard
        self.came_by = 0  # the connection of the last message that was received
        self._gone = set[int]()  # until something comes of them
        self._cut_short = set[int]()  # of whom nothing is taken any more: a body is gone with its sender
        self.looked = False  # whether the inbox has been found empty; for others to reset

    @property
    def refused(self) -> int:
        """How many connections have been refused since this was asked last."""
        return self._door.refused()

    def send(self, to: int, header: Sequence[Any], body: torch.Tensor | None) -> Sent:
        """Queue a message: a header, its values of the types of `_HEADER`, and perhaps a body.

        A body is a flat vector of the workload's type, or an encoded one, of bytes or a narrower type: which
        is said in front, with the number of bytes (−1: no body). A large body is a frame of its own, or
        somewhere in memory, which is said behind the front.
        """
        nbytes = -1 if body is None else body.nbytes
        if nbytes > self.most_bytes:
            raise ValueError(
                f"a message of {nbytes:,} bytes; at most {self.most_bytes:,} (four times the parameters)"
            )
        kind = 0 if body is None or body.dtype == self.dtype else _TYPES.index(body.dtype)
        front = [nbytes, kind, *header]
        if body is None:
            return self._send(to, front)
        if accelerated(body.device) and nbytes >= _COPY_BELOW and (found := self._on_device(to, body)):
            return self._send(to, front, found)
        data = to_host(body).view(torch.uint8).numpy()
        if nbytes < _COPY_BELOW:
            return self._send(to, front, data.tobytes())
        return self._send(to, front, whole=data)

    def _on_device(self, to: int, body: torch.Tensor) -> bytes:
        """Where on this device a receiver can read a body; nothing if it cannot."""
        if self._lent is None or self.on_devices is None or to not in self.on_devices.readers:
            return b""
        with self._sending:  # which pieces are free is not for several threads at once
            found = self.on_devices.lend(self._lent, to, body)
        return _write(found).encode() if found else b""

    def _send(self, to: int, front: list[Any], data: bytes = b"", whole: np.ndarray | None = None) -> Sent:
        with self._sending:
            if to in self._gone:
                return Sent()
            peer = self._peer(to)
            self.sent[to] += 1
            line = _write([self.life + self.lives[to], self.sent[to], *front]).encode() + b"\n"
            if whole is not None and self._lent is not None and (where := self._lent.lend(to, whole)):
                data, whole = _write(where).encode(), None
            if whole is None:
                peer.send(line + data)
                return Sent()
            peer.send(line, zmq.SNDMORE)
            return Sent(peer.send(whole.data, copy=False, track=True))

    def room(self, vector: torch.Tensor) -> torch.Tensor | None:
        """Memory for another like it, from which it can be sent without a copy; None: it lies anywhere."""
        if self._lent is None or vector.device.type != "cpu" or vector.nbytes < _COPY_BELOW:
            return None
        found = self._lent.room(vector.nbytes)
        return None if found is None else torch.frombuffer(found, dtype=vector.dtype)

    def connection(self, to: int) -> int:
        """Which connection to another process there is now: how often both have begun anew; −1: none."""
        return _NOWHERE if to in self._gone else self.life + self.lives[to]

    def there(self) -> bool:
        """Whether a message can be received now: a fifth of the price of trying to."""
        return bool(self.inbox.getsockopt(_EVENTS) & _POLLIN)

    def receive(self, timeout_s: float) -> tuple[list[Any], torch.Tensor | None] | None:
        """The next message, or None if there is none in time; ValueError if what came is not one."""
        timeout_ms = max(0, round(timeout_s * 1000))
        if timeout_ms != self._timeout_ms:
            self._timeout_ms = timeout_ms
            self.inbox.rcvtimeo = timeout_ms
        try:
            front = self.inbox.recv(copy=not self._door.tells_senders)
        except zmq.Again:
            self.looked = True
            return None
        known = self._door.sender(front) if self._door.tells_senders else None
        front = front if isinstance(front, bytes) else bytes(front.buffer)
        if front == self._wake:
            return None
        try:
            return self._parsed(front, known)
        except (ValueError, TypeError, RecursionError) as error:
            came = f"{front[:40]!r}, {len(front)} bytes"
            raise ValueError(f"no message of a run came in, but {came}: who else sends here?") from error

    def wake(self) -> None:
        """Let `receive` return in the thread that waits there; for one thread at a time."""
        self._own.send(self._wake)

    def _parsed(self, front: bytes, known: str | None) -> tuple[list[Any], torch.Tensor | None] | None:
        """A message; None if it is of a connection that is no more."""
        end = front.index(b"\n")  # JSON has none
        (connection, number, nbytes, kind, *header), _ = _read(front[:end].decode())
        if (
            list(map(type, [connection, number, *header])) != [int, int, *_HEADER]
            or known not in (None, str(header[1]))
            or header[1] not in self._senders
            or kind not in range(len(_TYPES))
        ):
            raise ValueError(f"a header of {header}")
        sender = header[1]
        # Nobody changes a body in place, so the message's own memory will do.
        data: Any = bytearray(memoryview(front)[end + 1 :])
        if nbytes >= _COPY_BELOW:
            data = self._large(sender, bytes(data), nbytes)
        if data is not None and len(data) != max(nbytes, 0):
            raise ValueError(f"{len(data)} bytes instead of {nbytes}")
        if connection < self.life + self.lives[sender]:
            return None
        if connection > self.life + self.lives[sender]:
            self._begin_anew(sender, connection - self.life)
        self._gone.discard(sender)
        self.taken[sender] += 1
        if number != self.taken[sender]:
            raise MessagesLost(self._missing(sender, number))
        self.came_by = connection
        if data is None:
            self._cut_short.add(sender)
        if sender in self._cut_short:
            return None
        if nbytes < 0:
            return header, None
        dtype = _TYPES[kind] or self.dtype
        if isinstance(data, torch.Tensor):
            return header, data.view(dtype)
        return header, torch.frombuffer(data, dtype=dtype) if nbytes else torch.empty(0, dtype=dtype)

    def _large(self, sender: int, where: bytes, nbytes: int) -> Any:
        """A large body as a buffer; None if it is gone with its sender."""
        if not where:
            return self.inbox.recv(copy=False).buffer if self.inbox.rcvmore else b""
        match _read(where.decode())[0]:
            case [int(process), int(file), int(piece), int(byte)] if 0 <= byte < HEADER:
                with suppress(FileNotFoundError):
                    return self._borrowed.body(sender, (process, file, piece, byte), nbytes)
                return None
            case [[int(process), int(file), int(piece), 0], [*handle]] if self.on_devices is not None:
                with suppress(FileNotFoundError):
                    token = process, file, piece, 0
                    return self.on_devices.body(self._borrowed, sender, token, handle, nbytes)
                return None
        raise ValueError(f"a body at {where!r}")

    def _begin_anew(self, peer: int, life: int) -> None:
        """A peer has died, and another has taken its place: what was on its way to it is lost."""
        with self._sending:
            if (before := self._peers.pop(peer, None)) is not None:
                before.close(0)
            self.lives[peer], self.sent[peer], self.taken[peer] = life, 0, 0
            self._cut_short.discard(peer)
            self._borrowed.forget(peer)
            if self.on_devices is not None:
                self.on_devices.forget(peer)
            if self._lent is not None:
                self._lent.forget(peer)

    def begin_anew(self, life: int) -> None:
        """This process begins anew with everybody, for the so-manieth time: what was on its way is lost."""
        self.store.set(_life(self.rank), str(life))
        self.life = life
        for peer in {*self.sent, *self.taken}:
            self._begin_anew(peer, self.lives[peer])

    def hear_of_lives(self, others: Sequence[int]) -> None:
        """Learn how often others have begun anew: of a process that comes later than they did."""
        for other in others:
            self.lives[other] = lives_so_far(self.store, other)

    def forget(self, peer: int, anew: bool = True) -> None:
        """A peer is gone: what comes of it from now on is of nobody, and nothing is sent to it.

        anew: whether there has been a connection to it, which is no more.
        """
        if anew and peer not in self._gone:  # else it is told again of one that has not come back
            self._begin_anew(peer, self.lives[peer] + 1)
        self._gone.add(peer)

    def _missing(self, sender: int, number: int) -> str:
        expected = self.taken[sender]
        if number < expected:
            return f"message {number} from rank {sender} came again, where number {expected} was next"
        lost = f"{number - expected} messages" if number > expected + 1 else "a message"
        return (
            f"{lost} from rank {sender} lost (number {number} came, where "
            f"{expected} was next): the connection was cut in between"
        )

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
                missing.discard(int(self.inbox.recv()))
            elif time.monotonic() > end:
                raise TimeoutError(
                    f"no connection from rank {min(missing)} within {_CONNECT_S:.0f} s: "
                    "does all TCP pass between the hosts?"
                )

    def _peer(self, rank: int) -> Any:
        if rank not in self._peers:
            endpoint = self.store.get(f"address/{rank}").decode()
            self._peers[rank] = self._doors.connect(zmq.PUSH, str(rank), endpoint)
        return self._peers[rank]

    def let_go(self) -> None:
        """Read no GPU of others any more; theirs is to be there until all have."""
        if self.on_devices is not None:
            self.on_devices.let_go()

    def close(self) -> None:
        """Close all sockets; what has not been sent by now is dropped."""
        self._doors.close()
        if self._lent is not None:
            self._lent.close()


def lives_so_far(store: Store, rank: int) -> int:
    """How often a process has begun anew, as it has told."""
    return int(store.get(_life(rank))) if store.check([_life(rank)]) else 0


def _life(rank: int) -> str:
    return f"life/{rank}"
