"""Which processes of a real run are gone, as who lets them fail says to those that take their places.

Not by the clock: a link comes back some milliseconds after it was to, and a connection that is begun before
is tried again after a second only (RFC 6298, §2: TCP's first retransmission).
"""

from collections.abc import Sequence

from lockstep.executor.stores import Store


def say(store: Store, ranks: Sequence[int], gone: bool) -> None:
    """These are gone, or may be back."""
    for rank in ranks:
        store.set(_key(rank), "gone" if gone else "back")


def over(store: Store, rank: int) -> bool:
    """Whether who takes this one's place may begin."""
    return bool(store.get(_key(rank)) == b"back")


def _key(rank: int) -> str:
    return f"absence/{rank}"
