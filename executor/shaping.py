"""A token bucket on an interface: what leaves there goes at a given rate, and is shared fairly.

Linux's htb: one bucket for the whole interface; below it the pairs of hosts whose frames leave there take
turns (deficit round robin), so that each gets an equal share or what it needs, as in the simulator. Pure
acknowledgements are not shaped: with trains as short as these they would take 1 to 2% of the opposite
direction. Why not tbf, which has one queue for all: docs/design.md. Rates count whole Ethernet frames.

Turns are taken in the order of the pairs, and whenever the last one that waits has had its turn, htb begins
again with the first that waits by then: a frame that has just come to an early pair overtakes those of later
ones. So the pairs that come first in a list are a little ahead.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any

FRAME, DATA = 1514, 1448  # bytes: a full frame (MTU 1500, headers and TCP's time stamps), and the data in it
QUEUE = 64_000  # bytes of a message that wait in switches: TCP's windows come to 25 to 50 frames, some to 100
LINE_RATE = 1.25e9  # bytes/s of a card that is not shaped: of no consequence where buckets are small
_TRAIN_S = 500e-6  # frames of one connection that go together take this long
_FEW, _FEW_S = (2, 4), 1e-3  # or they are so few, and take as long as this if they can
_FIRST = 8192 - 64  # bytes: ZeroMQ hands the kernel so much of a message (and its header), and then the rest
_PER_FRAME, _MOST = 1600, 65_000  # bytes, with what the kernel reserves for headers
_BUCKET_S = 125e-6  # what an idle interface saves up, at least a frame: timers are late by less
_QUEUE = 10_000  # trains that may wait: TCP has less under way, so that nothing is lost
_IPV4 = 0x0800
_UNSHAPED, _ALL, _OTHERS, _PAIRS = 0x10000, 0x10001, 0x10003, 0x10010  # classes; of htb itself: at once
# TCP with no flag but ACK, in an IP packet of 52 bytes (40 without time stamps): no data.
_PURE = [
    (f"0x{size:08x}/0x0000ffff+0", "0x00060000/0x00ff0000+8", "0x00100000/0x00ff0000+32") for size in (52, 40)
]


def train(rate: float) -> int:
    """Bytes of one connection that go at once, on a network whose slowest cable has this rate (bytes/s)."""
    few = min(max(round(rate * _FEW_S / FRAME), _FEW[0]), _FEW[1])
    return max(few * _PER_FRAME, min(_MOST, int(rate * _TRAIN_S)))


def trains(slowest: float) -> dict[str, float]:
    """`train` and `first` of a burst: bytes of data. `slowest`: the least rate of all cables, bytes/s."""
    return {"train": train(slowest) // _PER_FRAME * DATA, "first": _FIRST}


def bucket(rate: float) -> int:
    """Bytes that an idle interface of that rate (bytes/s) has saved up."""
    return max(FRAME, int(rate * _BUCKET_S))


def shape(
    ip: Any, index: int, rate: float, train: int, pairs: Sequence[tuple[IPv4Address, IPv4Address]]
) -> None:
    """Shape what leaves the interface of that index to `rate` bytes/s, for these (sender, receiver) pairs.

    `ip`: pyroute2's socket, in the interface's namespace.
    """
    saved = bucket(rate)
    alone = max(10, int(rate * 1e-4))  # a class needs a rate of its own; it borrows the rest

    def add(number: int, own: int, parent: int = _ALL) -> None:
        ip.tc(
            "add-class", "htb", index, handle=number, parent=parent, quantum=max(FRAME, train),
            rate=own, ceil=int(rate), burst=saved, cburst=saved,
        )  # fmt: skip

    def direct(number: int, keys: Sequence[str], priority: int) -> None:
        ip.tc(
            "add-filter", "u32", index, parent=0x10000, prio=priority, protocol=_IPV4, target=number,
            keys=list(keys),
        )  # fmt: skip

    ip.link("set", index=index, txqlen=_QUEUE)
    ip.tc("add", "htb", index, handle=0x10000, default=_OTHERS & 0xFFFF)
    add(_ALL, int(rate), parent=0x10000)
    add(_OTHERS, alone)
    for keys in _PURE:
        direct(_UNSHAPED, keys, priority=1)
    for number, (sender, receiver) in enumerate(pairs, _PAIRS):
        add(number, alone)
        pair = f"0x{int(sender):08x}/0xffffffff+12", f"0x{int(receiver):08x}/0xffffffff+16"
        direct(number, pair, priority=2)


def lost(ip: Any) -> int:
    """How many frames the queues of a namespace have dropped."""
    statistics = [queue.get_attr("TCA_STATS2") for queue in ip.get_qdiscs()]
    return sum(found.get_attr("TCA_STATS_QUEUE")["drops"] for found in statistics if found is not None)
