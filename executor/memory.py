"""Parameters in memory that all workers of a host map, and that nobody locks.

The memory has no name that could be left behind: worker 0 makes it (memfd_create), the others open it through
worker 0's /proc, and it is gone with the last process that maps it, however that ended.
"""

import mmap
import os
from collections.abc import Sequence
from fcntl import LOCK_EX, LOCK_UN, flock
from math import inf
from threading import Lock
from typing import Any

import numpy as np
import torch

from lockstep.executor.devices import Place
from lockstep.executor.port import RealPort
from lockstep.executor.stores import Store
from lockstep.job.events import Retired
from lockstep.job.node import Node
from lockstep.scenarios import ScenarioError
from lockstep.strategies import Vector

_HEADER = 64  # bytes before the parameters: the number of completed additions, on a cache line of its own


class SharedMemory:
    """The parameters, and how many additions to them have been completed.

    Only that number is locked: between processes by flock, which the death of a process undoes, between
    threads by a lock. That takes 1.5 us; the store's `add` takes 60.
    """

    def __init__(self, store: Store, rank: int, initial: torch.Tensor) -> None:
        """All ranks map what rank 0 makes; its `initial` are the first parameters."""
        if rank == 0:
            self._file = os.memfd_create("lockstep")
            os.ftruncate(self._file, _HEADER + initial.nbytes)
        else:
            self._file = os.open(store.get("memory").decode(), os.O_RDWR)
        buffer = mmap.mmap(self._file, 0)
        self._count = np.frombuffer(buffer, np.int64, 1)
        self._counting = Lock()
        self.parameters = torch.frombuffer(buffer, dtype=initial.dtype, offset=_HEADER)
        if rank == 0:
            self.parameters.copy_(initial)
            store.set("memory", f"/proc/{os.getpid()}/fd/{self._file}")

    @property
    def additions(self) -> int:
        """How many have been completed."""
        return int(self._count[0])

    def add(self, update: torch.Tensor) -> None:
        """Load, add and store each component of a float32 `update` that is not zero."""
        ours, theirs = self.parameters.numpy(), update.numpy()
        np.add(ours, theirs, out=ours, where=theirs != 0)

    def completed(self, node: Node) -> tuple[int, float]:
        """Count an addition; its number, from 1, and the node's time, which are in the same order."""
        with self._counting:
            flock(self._file, LOCK_EX)
            try:
                self._count[0] += 1
                return self.additions, node.clock.now
            finally:
                flock(self._file, LOCK_UN)


class WorkerMemory:
    """See `strategies.node.Memory`: one worker's way to it."""

    def __init__(self, node: Node, port: RealPort, shared: SharedMemory) -> None:
        self.node, self.port, self.shared = node, port, shared
        self.last = port.plan.scenario.stop.updates or inf  # the version that ends the run
        self.completed = 0.0  # when this worker's last addition was

    def now(self) -> torch.Tensor:
        """The parameters, while others may be adding to them."""
        return self.shared.parameters.to(self.port.initial.device, copy=True)

    async def read(self) -> tuple[Vector, int]:
        node, start, before = self.node, self.node.clock.now, self.shared.additions
        parameters: Any = self.now()
        node.recorder.memory(node.rank, start, node.clock.now, "read")
        return parameters, before

    async def add(self, update: Vector) -> int:
        node, change = self.node, update.cpu()  # type: ignore[attr-defined]
        self.port.look_for_the_end()
        if self.shared.additions >= self.last:
            raise Retired
        start = node.clock.now
        if self.port.learner is None:  # all zeros: only the time counts
            self.shared.parameters.add_(change)
        else:
            self.shared.add(change)
        version, self.completed = self.shared.completed(node)
        node.recorder.memory(node.rank, start, self.completed, "add")
        return version

    def completed_at(self, version: int) -> float:
        """When the memory came to that version, by an addition of this worker's.

        Raises Retired for one beyond the last: others were adding when that was completed.
        """
        if version > self.last:
            raise Retired
        return self.completed

    def leave(self) -> None:
        """Keep what the run leaves in memory, if this worker's addition was the last."""
        snapshots = self.node.snapshots
        if snapshots is None:
            return
        if snapshots.last is not None and snapshots.last[0] == min(self.shared.additions, self.last):
            snapshots.finish(self.now())
        else:
            snapshots.last = None


def on_one_host(strategy: str, places: Sequence[Place]) -> None:
    """Raise ScenarioError if workers that are to share a memory are not all on one host."""
    hosts = sorted({place.host for place in places})
    names = [host.partition("/")[0] for host in hosts]
    if len(hosts) > 1:
        problem = f"all workers of {strategy} must be on one host, whose memory they share; not on "
        raise ScenarioError(problem + " and ".join(names), key="strategy.name")
