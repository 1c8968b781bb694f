"""Large bodies between processes that have GPUs of one host: from GPU to GPU, not through the host's memory.

As in bodies.py a body is copied to a piece of memory, here of the sender's GPU, that the receiver maps too
(CUDA calls that IPC), and the receiver copies it to its own GPU. Both wait for their copy: no GPU waits for
another's stream. A piece of the host's memory that is lent with it says whose turn it is.

Whether that works is tried before the start, between each two of them. Where it does not, or where torch has
no such handles of a kind of device, bodies go through the host's memory.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.executor.barrier import barrier
from lockstep.executor.bodies import Borrowed, Lent, Where
from lockstep.executor.devices import Place
from lockstep.executor.stores import Store
from lockstep.workloads.streams import accelerated, finished

Handle = list[Any]
"""What torch tells of a piece of a GPU's memory, as JSON: bytes are hexadecimal."""

_TOKEN = np.zeros(1, np.uint8)


class DeviceBodies:
    """The pieces that a worker or a server lends, and those of others that it maps."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.readers: set[int] = set()
        """The ranks that can read what this process lends."""
        self.indices: dict[int, int] = {}
        """By rank: which of the GPUs that this process sees is another one's."""
        self._pieces: dict[int, dict[int, tuple[Tensor, Handle]]] = {}  # by receiver and number of the token
        self._mapped: dict[int, dict[str, Tensor]] = {}  # by sender and handle

    def lend(self, lent: Lent, to: int, vector: Tensor) -> tuple[Where, Handle] | None:
        """Copy a vector to where a receiver can read it; None if too many are lent."""
        if (where := lent.lend(to, _TOKEN)) is None:
            return None
        piece, handle = self._piece(to, where[2], vector.nbytes)
        piece[: vector.nbytes].copy_(vector.view(torch.uint8))
        finished(piece)
        return where, handle

    def body(self, borrowed: Borrowed, sender: int, where: Where, handle: Handle, nbytes: int) -> Tensor:
        """Return a body, of bytes on the own device; the piece is the sender's again.

        Raises as `Borrowed.body` does.
        """
        token = borrowed.body(sender, where, len(_TOKEN))
        found = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        found.copy_(self._there(sender, handle)[:nbytes])
        finished(found)
        del token
        return found

    def let_go(self) -> None:
        """Map nothing of others any more; they wait for that before they go."""
        self._mapped.clear()

    def forget(self, other: int) -> None:
        """Another process is no more; who takes its place is reached through the host's memory."""
        self.readers.discard(other)
        for known in (self._mapped, self._pieces, self.indices):
            known.pop(other, None)

    def _piece(self, to: int, number: int, nbytes: int) -> tuple[Tensor, Handle]:
        its = self._pieces.setdefault(to, {})
        if number not in its or len(its[number][0]) < nbytes:
            piece = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
            its[number] = piece, shared(piece)
        return its[number]

    def _there(self, sender: int, handle: Handle) -> Tensor:
        its, key = self._mapped.setdefault(sender, {}), json.dumps(handle)
        if key not in its:
            its[key] = opened(handle, torch.device(self.device.type, self.indices[sender]))
        return its[key]


def shared(piece: Tensor) -> Handle:
    """Tell of a piece of memory so that other processes can map it."""
    told = getattr(piece.untyped_storage(), f"_share_{piece.device.type}_")()
    return [part.hex() if isinstance(part, bytes) else part for part in told]


def opened(handle: Handle, device: torch.device) -> Tensor:
    """Map a piece of another process's memory; a GPU's index there may be another one here."""
    _, *told = [bytes.fromhex(part) if isinstance(part, str) else part for part in handle]
    storage = getattr(torch.UntypedStorage, f"_new_shared_{device.type}")(device.index, *told)
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def agree(store: Store, rank: int, places: Sequence[Place], device: torch.device) -> DeviceBodies | None:
    """Try who can read whose GPU; all processes of the run call this. None: this one has nobody to."""
    found, own = DeviceBodies(device), places[rank]
    piece = torch.full((1,), rank % 256, dtype=torch.uint8, device=device)
    finished(piece)
    can = accelerated(device) and hasattr(torch.UntypedStorage, f"_share_{device.type}_")
    mine = own.gpus[device.index] if can else None
    beside = [each for each, place in enumerate(places) if can and place.host == own.host and each != rank]
    # a handle for each who sees this GPU: torch counts who has not let go yet
    handles = {str(each): shared(piece) for each in beside if mine in places[each].gpus}
    store.set(f"piece/{rank}", json.dumps([mine, handles]))
    barrier(store, "pieces", len(places))
    for other in beside:
        its, handles = json.loads(store.get(f"piece/{other}"))
        if its not in own.gpus:
            continue
        found.indices[other] = own.gpus.index(its)
        try:
            said = int(opened(handles[str(rank)], torch.device(device.type, found.indices[other])))
        except (RuntimeError, OSError):  # as where containers keep processes apart
            said = -1
        if said != other % 256:
            del found.indices[other]
    store.set(f"reads/{rank}", json.dumps([*found.indices]))
    barrier(store, "read", len(places))
    found.readers = {other for other in range(len(places)) if rank in json.loads(store.get(f"reads/{other}"))}
    return found if found.readers or found.indices else None
