"""Who holds a run up: told from what its processes say of themselves, several times a second.

No I/O, no clock: `hear` and `stall` are given the time.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

LEAST_S = 20.0  # without a sign, or without getting on
_GRADIENTS = 10  # as many of the longest gradients, if these take longer
_NOTED_S = 5.0  # for which others have waited before somebody is told


@dataclass(frozen=True)
class Status:
    """What a process says of itself."""

    done: int = 0
    """Grows with every message, gradient and answer."""
    waits: tuple[tuple[str | None, int | None], ...] | None = None
    """Kinds and senders (None: any) of the messages that all its activities wait for; None: it is busy."""
    begun: bool = False
    """Whether the run's clock has started for it."""
    ended: bool = False
    """Whether it has nothing more to do."""
    longest_s: float = 0.0
    """Its longest piece of work so far, what it is at included."""
    sent: dict[int, int] = field(default_factory=dict)
    """Messages to others, by rank."""
    taken: dict[int, int] = field(default_factory=dict)
    """Messages from others, by rank."""
    looked: bool = False
    """Whether it has looked for messages since it said this last, and there was none left."""
    stood_s: float = 0.0
    """For how long it has stood still, stopped from outside."""
    refused: int = 0
    """Connections of strangers that it has refused."""
    done_share: float = 0.0
    """Of the run, in [0, 1]."""

    def to_json(self) -> dict[str, Any]:
        """For `from_json`."""
        return {key: value for key, value in asdict(self).items() if value != getattr(_NOTHING, key)}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> "Status":
        """What another process said. Raises ValueError, TypeError or AttributeError if it is no status."""
        for key in ("sent", "taken"):
            said[key] = {int(rank): int(count) for rank, count in said.get(key, {}).items()}
        if said.get("waits") is not None:
            said["waits"] = tuple(_waited_for(*each) for each in said["waits"])
        found = cls(**said)
        for key, value in vars(found).items():
            usual = type(getattr(_NOTHING, key))
            if key != "waits" and not (type(value) is usual or (usual is float and type(value) is int)):
                raise ValueError(f"{key}: {value!r}")
            if usual is float and not isfinite(value):
                raise ValueError(f"{key}: {value!r}")
        return found


def _waited_for(kind: str | None, sender: int | None) -> tuple[str | None, int | None]:
    if not isinstance(kind, str | None) or not isinstance(sender, int | None):
        raise ValueError(f"waits for {kind!r} of {sender!r}")
    return kind, sender


_NOTHING = Status()


@dataclass(frozen=True)
class Stall:
    """Why a run does not get on: `kind` is "silent", "stuck" (busy, without an end) or "lost" (messages)."""

    kind: str
    ranks: tuple[int, ...]  # who holds it up; of lost messages: sender and receiver
    seconds: float
    waiting: tuple[int, ...] = ()  # who waits for them
    messages: int = 0  # lost ones


class Watchdog:
    """Follows processes 0, 1, …"""

    def __init__(self, processes: int, deadline_s: float | None) -> None:
        """deadline_s: None for the default."""
        self.processes = processes
        self.senders: Sequence[Sequence[int]] = [range(processes)] * processes
        """Of each process, who may send messages to it."""
        self.path_s = 0.0
        """For how long messages may be on their way."""
        self._given = deadline_s
        self.status: dict[int, Status] = {}
        self._heard: dict[int, float] = {}
        self._since: dict[int, float] = {}  # when it last got on
        self._overdue: dict[tuple[int, int], tuple[int, float]] = {}  # of a pair: taken, and since when

    @property
    def deadline_s(self) -> float:
        """For how long a process may give no sign, or not get on."""
        if self._given is not None:
            return self._given
        longest = max((status.longest_s for status in self.status.values()), default=0.0)
        return max(LEAST_S, _GRADIENTS * longest, self.path_s)

    def expect(self, rank: int, now: float) -> None:
        """A process has been started."""
        self._heard[rank] = self._since[rank] = now

    def hear(self, rank: int, status: Status, now: float) -> None:
        """A process has told its status."""
        before = self.status.get(rank)
        if before is None or before.done != status.done or before.begun != status.begun:
            self._since[rank] = now
        self.status[rank], self._heard[rank] = status, now
        for sender, taken in [(other, status.taken.get(other, 0)) for other in self.senders[rank]]:
            sent = self.status[sender].sent.get(rank, 0) if sender in self.status else 0
            pair = sender, rank
            if sent <= taken or not status.looked:  # who does not look may have it in its inbox
                self._overdue.pop(pair, None)
            elif self._overdue.get(pair, (-1, 0.0))[0] != taken:
                self._overdue[pair] = taken, now

    def forget(self, rank: int) -> None:
        """A process is gone that was to go."""
        for told in (self.status, self._heard, self._since):
            told.pop(rank, None)
        for pair in [pair for pair in self._overdue if rank in pair]:
            del self._overdue[pair]

    def forgive(self, now: float) -> None:
        """Count anew from now on: the watchdog itself has not looked for a while."""
        self._heard = dict.fromkeys(self._heard, now)
        self._since = dict.fromkeys(self._since, now)
        self._overdue.clear()

    def stall(self, now: float) -> Stall | None:
        """What holds the run up for longer than it may; None if nothing does."""
        deadline = self.deadline_s
        quiet = {rank: now - heard for rank, heard in self._heard.items() if not self._ended(rank)}
        silent = [
            rank
            for rank, seconds in quiet.items()
            if seconds > (deadline if rank in self.status else self._may_take(rank))
        ]
        if silent:
            return Stall("silent", tuple(silent), max(quiet[r] for r in silent), self._waiting_for(silent))
        for (sender, rank), (taken, since) in self._overdue.items():
            if now - since > deadline and not self._ended(rank):
                missing = self.status[sender].sent.get(rank, 0) - taken
                return Stall("lost", (sender, rank), now - since, (rank,), missing)
        idle = {rank: now - since for rank, since in self._since.items() if not self._ended(rank)}
        stuck = [rank for rank, s in idle.items() if s > self._may_take(rank) and not self._waits(rank)]
        if stuck:
            return Stall("stuck", tuple(stuck), max(idle[r] for r in stuck), self._waiting_for(stuck))
        if idle and all(seconds > self._may_take(rank) for rank, seconds in idle.items()):
            return Stall("stuck", (), min(idle.values()), tuple(idle))
        return None

    def silent(self, now: float, seconds: float) -> dict[int, float]:
        """Who has given no sign for so long after the last one, and for how long."""
        quiet = {rank: now - self._heard[rank] for rank in self.status if not self._ended(rank)}
        return {rank: each for rank, each in quiet.items() if each > seconds}

    def waited_for(self, now: float) -> list[int]:
        """Whom others have been waiting for, for some seconds."""
        long = [rank for rank in self._since if self._waits(rank) and now - self._since[rank] > _NOTED_S]
        return sorted({other for rank in long for other in self._blamed(rank)}) if long else []

    def stood(self) -> dict[int, float]:
        """Who has stood still in the run, and for how long (s)."""
        return {rank: status.stood_s for rank, status in self.status.items() if status.stood_s}

    def _may_take(self, rank: int) -> float:
        """For how long a process need not get on; before the clock starts it builds what it computes with."""
        begun = rank in self.status and self.status[rank].begun
        return self.deadline_s * (1 if begun or self._given is not None else 6)

    def _ended(self, rank: int) -> bool:
        return rank in self.status and self.status[rank].ended

    def _waits(self, rank: int) -> bool:
        return rank in self.status and self.status[rank].waits is not None

    def _blamed(self, rank: int) -> set[int]:
        """Those that a process waits for, in the end: who can go on, or does not tell."""
        seen, ask, found = {rank}, [rank], set()
        while ask:
            asked = ask.pop()
            for _, sender in self.status[asked].waits or ():
                for other in self.senders[asked] if sender is None else (sender,):
                    if other in seen:
                        continue
                    seen.add(other)
                    if self._waits(other):
                        ask.append(other)
                    elif not self._ended(other):
                        found.add(other)
        return found

    def _waiting_for(self, ranks: Sequence[int]) -> tuple[int, ...]:
        return tuple(
            r for r in self.status if r not in ranks and self._waits(r) and self._blamed(r) & {*ranks}
        )
