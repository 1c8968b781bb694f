"""What a worker that may be killed has computed: on disk at once, in two small writes a mini-batch.

Records are written twice a second, and a kill would take the last of them along.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

from lockstep.analysis.records import Recorder, of
from lockstep.executor.anew import Anew
from lockstep.executor.port import RealPort
from lockstep.executor.termination import await_who_is_there
from lockstep.executor.transport import Sent
from lockstep.executor.waiting import Alarm
from lockstep.job.events import Retired
from lockstep.job.port import PassOf, Work
from lockstep.strategies.node import Message

if TYPE_CHECKING:
    import pandas as pd

# mini-batch, start, and end in s on the run's clock; nan: it is under way, negative: it was given up then
_ENTRY = Struct("=idd")
Entry = tuple[int, float, float]


class JournallingPort(RealPort):
    """A worker's that notes its gradients in the file `journal`."""

    journal: Path
    _file = -1

    def compute(
        self, parameters: Any, step: int, down_to: Sequence[int] = (), of: PassOf | None = None
    ) -> Work:
        """As any port's."""
        work = super().compute(parameters, step, down_to, of)
        if of is None:
            self.note(step, work.start, nan)
            work.done.then(lambda _: self.note(step, work.start, self.now))
        return work

    def note(self, step: int, start: float, end: float) -> None:
        """Of a mini-batch: it is under way (nan), or was computed then, or (negative) was given up then."""
        if self._file < 0:
            self._file = os.open(self.journal, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(self._file, _ENTRY.pack(step, start, end))


class GoingOnPort(JournallingPort):
    """A worker's that goes on when others fail, and begins anew when a server has."""

    hears = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._told: dict[int, int] = {}  # who has been told that it has ended, and on which connection

    def post(self, to: int, message: Message) -> Sent:
        """As any port's; raises Anew if a server has begun anew: what was made before is nothing to it."""
        if self.is_of_before():
            raise Retired
        if self.broken:
            raise Anew
        sent = super().post(to, message)
        sent.look = self._look
        return sent

    def _look(self) -> bool:
        """Whether there is news, perhaps that who does not take a message is gone."""
        self.inbox.look()
        self.look_for_the_end()
        return any(isinstance(event, Alarm) and event.due() for event in self._pending)

    def settle(self) -> None:
        """Wait until all others have ended, too."""
        await_who_is_there(self)

    def alone(self) -> bool:
        """Whether all others have ended, or are gone for good."""
        connection, others = self.transport.connection, self.plan.told_of(self.rank)
        return all(self.ended.get(other) == connection(other) for other in others)

    def say_farewell(self) -> None:
        """Tell those who have not been told yet, or have begun anew since."""
        for other in self.plan.told_of(self.rank):
            if self._told.get(other) != (connection := self.transport.connection(other)):
                self._told[other] = connection
                self.bid_farewell(other)

    def give_up(self) -> None:
        """What is under way will not be computed."""
        for step, start in self.node.under_way.items():
            self.note(step, start, -self.now)


def journal_of(folder: Path, rank: int) -> Path:
    """Where it is."""
    return folder / f"journal-{rank}"


def journals_of(folder: Path, rank: int) -> list[Path]:
    """Those of all who have been that worker in a life of the job."""
    own = journal_of(folder, rank)
    return [*sorted(folder.glob(f"{own.name}.life-*")), own]


@dataclass(frozen=True)
class Journal:
    """Of the gradients that have been computed, and of those that were given up."""

    done: list[Entry]
    given_up: list[Entry]
    under_way: Entry | None


def unwritten(noted: Journal, worker: int, known: "pd.DataFrame | None") -> "pd.DataFrame":
    """The gradients of a worker that its records, of all those that are known, do not have."""
    found, rest = Recorder(), set[float]()
    if known is not None:
        rows = of(known, "gradient", ["node", "start"])
        rest = set(rows["start"][rows["node"] == worker])
    for step, start, end in noted.done:
        if start not in rest:
            found.gradient(worker, start, end, step)
    return found.frame()


def read(journal: Path) -> Journal:
    """What a worker has noted; of each gradient the last: one may be given up in the instant of its end."""
    data = journal.read_bytes() if journal.exists() else b""
    found = _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size])
    entries = list({start: (step, start, end) for step, start, end in found}.values())
    return Journal(
        [entry for entry in entries if entry[2] >= 0],
        [(step, start, -end) for step, start, end in entries if end < 0],
        entries[-1] if entries and isnan(entries[-1][2]) else None,
    )
