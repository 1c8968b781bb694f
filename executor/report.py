"""What a process of a run tells while it goes on: its status to the hub, its records to the disk."""

from pathlib import Path
from threading import Lock

import lockstep.analysis.streams as streams
from lockstep.executor.interleaving import Interleaving
from lockstep.executor.port import RealPort
from lockstep.executor.watchdog import Status


class Report:
    """Of one process; a thread asks for `status` and calls `write` now and then."""

    def __init__(self, port: RealPort, log: Interleaving, kept: Path) -> None:
        """kept: the folder for its records."""
        self.port, self.log = port, log
        self.files = [streams.file_of(kept, port.rank, what) for what in (streams.RECORDS, streams.LOG)]
        self._streams = [streams.Stream(file) for file in self.files]
        self._writing, self._closed = Lock(), False
        self._refused = 0

    def status(self) -> Status:
        """What the node is at, which may change meanwhile."""
        node, port, transport = self.port.node, self.port, self.port.transport
        sent, taken = dict(transport.sent), dict(transport.taken)
        looked, transport.looked = transport.looked, False
        self._refused += transport.refused
        return Status(
            done=node.step + node.collectives + sum(sent.values()) + sum(taken.values()) + self.log.nbytes,
            waits=port.waits(),
            begun=True,
            longest_s=port.computing.longest_s,
            sent=sent,
            taken=taken,
            looked=looked,
            refused=self._refused,
            done_share=self._done_share(),
        )

    def _done_share(self) -> float:
        """How much of the run this process knows to be done, from 0 to 1."""
        node = self.port.node
        ending, found = node.ending, [self.port.stopping.done_share]
        if until := self.port.plan.scenario.stop.time:
            found.append(self.port.now / until)
        if ending.quota.each:
            found.append(node.step / ending.quota.each)
        if ending.limit:
            found.append(ending.versions.get(node.owner, 0) / ending.limit)
        return max(found)

    def write(self) -> None:
        """Put what has been recorded since the last time on disk. Raises OSError."""
        with self._writing:
            if self._closed:
                return
            found = (
                streams.columns_of(*self.port.node.recorder.drain()),
                streams.log_columns(*self.log.drain()),
            )
            for stream, columns in zip(self._streams, found, strict=True):
                if columns is not None:
                    stream.write(columns)

    def close(self) -> None:
        """Write the rest; what activities record that go on after the run's end is not of the run."""
        self.write()
        with self._writing:
            self._closed = True
            for stream in self._streams:
                stream.close()
