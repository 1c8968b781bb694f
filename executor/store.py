"""Values of any size in a torch.distributed store, which takes a few megabytes at a time."""

import torch.distributed as dist

_PIECE = 4 << 20  # bytes


def put(store: dist.Store, key: str, value: bytes) -> None:
    """Store a value; `has` is true once all of it is there."""
    pieces = range(0, len(value), _PIECE)
    for number, start in enumerate(pieces):
        store.set(f"{key}/{number}", value[start : start + _PIECE])
    store.set(key, str(len(pieces)))


def has(store: dist.Store, key: str) -> bool:
    """Whether a value has been stored whole."""
    return bool(store.check([key]))


def get(store: dist.Store, key: str) -> bytes:
    """The value; waits for it."""
    return b"".join(store.get(f"{key}/{number}") for number in range(int(store.get(key))))
