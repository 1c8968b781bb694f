"""Memory that workers share and do not lock (Niu et al. 2011): the race, component by component.

A read copies n components one after the other, in n·itemsize ÷ bandwidth seconds; an addition loads and
stores each of k components before the next, in k·2·itemsize ÷ bandwidth, after the overhead of any update. A
store overwrites what others have stored since the load: their update of that component is lost.

Not modelled: that all are slower while many use the bus; caches; processors that reorder loads and stores.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lockstep.job.node import Node
from lockstep.strategies import Vector

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation

Floats = NDArray[np.float32]
Places = NDArray[np.int64]


class Sweep:
    """One way over some components: number j, `where[j]`, is loaded at `times[j]`, stored at `times[j + 1]`.

    `held[j]` is what was loaded; stored is that plus `update[j]`, or nothing, in a read.
    """

    def __init__(self, start: float, seconds: float, where: Places, update: Floats | None) -> None:
        self.where, self.update = where, update
        self.times = start + seconds * (np.arange(len(where) + 1) / len(where))
        self.held = np.empty(len(where), np.float32)
        self.loaded = self.stored = 0

    def go_on(self, until: float) -> tuple[slice, slice]:
        """The numbers of those that are loaded, and stored, next: all until some instant."""
        passed = int(np.searchsorted(self.times, until, "right"))
        loads = slice(self.loaded, min(passed, len(self.where)))
        stores = slice(self.stored, max(passed - 1, 0))
        self.loaded, self.stored = loads.stop, stores.stop
        return loads, stores if self.update is not None else slice(0, 0)


class Race:
    """Components as they are once all that was to happen until some instant has (`advance`).

    What happens at one instant does in the order in which the sweeps began.
    """

    def __init__(self, initial: Floats) -> None:
        self.values = initial.copy()
        self.everywhere: Places = np.arange(len(initial))
        self._under_way: list[Sweep] = []  # in the order in which they began

    def begin(self, start: float, seconds: float, where: Places, update: Floats | None = None) -> Sweep:
        """Begin to read components or, with an `update` of each, to add; none begins before another has."""
        self._under_way.append(Sweep(start, seconds, where, update))
        return self._under_way[-1]

    def advance(self, now: float) -> Floats:
        """Let all happen until `now`, that instant included; the components as they are then."""
        with np.errstate(over="ignore", invalid="ignore"):  # of what diverges: the metrics tell
            for crowd in self._crowds():
                (self._alone if len(crowd) == 1 else self._in_turns)(crowd, now)
        self._under_way = [sweep for sweep in self._under_way if sweep.stored < len(sweep.where)]
        return self.values

    def _crowds(self) -> Iterator[list[Sweep]]:
        """Sweeps that overlap in time, directly or not."""
        crowd: list[Sweep] = []
        for sweep in self._under_way:
            if crowd and sweep.times[0] >= max(other.times[-1] for other in crowd):
                yield crowd
                crowd = []
            crowd.append(sweep)
        if crowd:
            yield crowd

    def _alone(self, sweeps: list[Sweep], now: float) -> None:
        (sweep,) = sweeps
        loads, stores = sweep.go_on(now)
        sweep.held[loads] = self.values[sweep.where[loads]]
        if sweep.update is not None:
            self.values[sweep.where[stores]] = sweep.held[stores] + sweep.update[stores]

    def _in_turns(self, sweeps: list[Sweep], now: float) -> None:
        """Each component has its own order of loads and stores: first all first ones, then all second …"""
        begins = np.cumsum([0, *(len(sweep.where) for sweep in sweeps)])
        where = np.concatenate([sweep.where for sweep in sweeps])
        held = np.concatenate([sweep.held for sweep in sweeps])
        update = np.concatenate([np.zeros_like(s.held) if s.update is None else s.update for s in sweeps])
        places, times = [], []  # in these arrays, of loads and stores in turn, and when
        for sweep, begin in zip(sweeps, begins[:-1], strict=True):
            for steps, at in zip(sweep.go_on(now), (sweep.times, sweep.times[1:]), strict=True):
                places.append(np.arange(begin + steps.start, begin + steps.stop))
                times.append(at[steps])
        is_store = np.repeat([False, True] * len(sweeps), [len(some) for some in places])
        place = np.concatenate(places)
        order = np.lexsort((np.concatenate(times), where[place]))  # stable: ties as the sweeps began
        place, is_store = place[order], is_store[order]
        first = np.flatnonzero(np.diff(where[place], prepend=-1))  # of each component
        turn = np.arange(len(place)) - np.repeat(first, np.diff(first, append=len(place)))
        for due in np.split(np.argsort(turn, kind="stable"), np.cumsum(np.bincount(turn))[:-1]):
            loads, stores = place[due[~is_store[due]]], place[due[is_store[due]]]
            held[loads] = self.values[where[loads]]
            self.values[where[stores]] = held[stores] + update[stores]
        for sweep, part in zip(sweeps, np.split(held, begins[1:-1]), strict=True):
            sweep.held = part


class WorkerMemory:
    """See `strategies.node.Memory`: one worker's way to it."""

    def __init__(self, simulation: "Simulation", node: Node) -> None:
        self.simulation, self.node = simulation, node

    def completed_at(self, version: int) -> float:
        """When the memory came to that version: now."""
        return self.node.clock.now

    def now(self) -> Any:
        """A copy of what is in it now."""
        return self.simulation.in_memory()

    async def read(self) -> tuple[Vector, int]:
        simulation, race, start = self.simulation, self.simulation.race, self.node.clock.now
        parameters, before = simulation.initial(0), simulation.additions
        seconds = simulation.memory_s(parameters.nbytes)
        sweep = race and race.begin(start, seconds, race.everywhere)
        await self._spend(seconds, start, "read")
        if race and sweep:
            race.advance(self.node.clock.now)
            parameters = parameters.new_tensor(sweep.held)
        return parameters, before

    async def add(self, update: Vector) -> int:
        simulation, race, start = self.simulation, self.simulation.race, self.node.clock.now
        if overhead := simulation.apply_s(0):
            await self.node.port.wait(overhead)
        seconds = simulation.memory_s(2 * update.nbytes)
        if race is not None:
            values: Floats = update.numpy()  # type: ignore[attr-defined]
            where = values.nonzero()[0]
            seconds = simulation.memory_s(2 * where.size * values.itemsize)
            if where.size:
                race.begin(self.node.clock.now, seconds, where, values[where])
        await self._spend(seconds, start, "add")
        simulation.additions += 1
        return simulation.additions

    async def _spend(self, seconds: float, start: float, kind: str) -> None:
        """Let the time of a read or addition pass; record it, since `start`, if it took any."""
        if seconds:
            await self.node.port.wait(seconds)
        if self.node.clock.now > start:
            self.node.recorder.memory(self.node.rank, start, self.node.clock.now, kind)
