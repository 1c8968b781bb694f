"""Lets a real run fail as `cluster.faults` says, by the clock: signals, and a testbed's links.

What fails by itself goes the same way, once the launcher has seen it.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from math import inf
from multiprocessing.process import BaseProcess
from threading import Event, Lock, Thread

from lockstep.executor import absence
from lockstep.executor.stores import Store
from lockstep.executor.testbed import Testbed
from lockstep.job.faults import Crash, Cut, Fault, Hang, Silent, Unforeseen
from lockstep.job.recovery import Faults, killed, noticed
from lockstep.scenarios import Scenario


class Injector:
    """Of one life of a job: `failed` is the fault that ends it, once that is noticed."""

    def __init__(
        self,
        scenario: Scenario,
        faults: Faults,
        processes: Sequence[BaseProcess],
        store: Store,
        bed: Testbed | None,
        ended: Callable[[int], bool],
    ) -> None:
        """bed: whose links are cut; None: processes hold messages up by themselves (cuts.py).

        ended: whether a rank has come to its end; nothing befalls it any more.
        """
        self.origin: float | None = None
        self.failed: Fault | None = None
        self.gone: dict[int, Fault] = {}
        """Who has failed, and how."""
        self.dead: deque[tuple[int, Fault, float]] = deque()
        """Who has been killed, why and when, where the job goes on: for the launcher to replace."""
        self._policy = scenario.on_failure
        self._scenario, self._faults, self._processes = scenario, faults, processes
        self._store, self._bed, self._ended = store, bed, ended
        self.by_themselves = 0
        """How many have failed that nobody has made to."""
        self.still: set[int] = set()
        """Who has been made to stand still for a while."""
        self.stopped: set[int] = set()
        """Who ever was: that the scenario says so is no disturbance."""
        self.cuts: list[Cut] = []
        """Those under way."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._over = Event()
        self._acting = Lock()
        self._thread = Thread(target=self._serve, daemon=True)

    def begin(self, origin: float) -> None:
        """Clocks of the run began then, by the monotonic clock."""
        self.origin = origin
        self._await_next()
        self._thread.start()

    def goes_on(self, fault: Fault) -> bool:
        """Whether the others do without those whom it befalls, or wait for them."""
        servers = any(rank >= self._scenario.cluster.workers for rank in fault.ranks)
        comes_back = fault.until < inf
        return (self._policy == "continue" and (comes_back or not servers)) or (
            self._policy == "wait" and comes_back
        )

    def end(self) -> None:
        """Nothing fails any more."""
        self._over.set()
        if self.origin is not None:
            self._thread.join()
        self._cut([])

    def _await_next(self) -> None:
        if self._faults.next is not None:
            self._at(self._faults.next.at, self._befalls)

    def _at(self, instant: float, do: Callable[[], None]) -> None:
        if instant < inf:
            heappush(self._due, (instant, next(self._numbers), do))

    def _serve(self) -> None:
        assert self.origin is not None
        while self._due and self.failed is None:
            at, _, do = self._due[0]
            if self._over.wait(max(0.0, self.origin + at - time.monotonic())):
                return
            with self._acting:
                if self.failed is None:
                    heappop(self._due)
                    do()

    def is_noticed_later(self, ranks: Sequence[int]) -> bool:
        """Whether one of these has failed as the scenario says, which ends this life once it is noticed."""
        found = self.gone.copy()
        return any(rank in found and not self.goes_on(found[rank]) for rank in ranks)

    def has_failed(self, ranks: Sequence[int], since: float | None = None) -> bool:
        """These have died, or have given no sign `since` (s), and nobody let them; False: that is the end.

        Who takes a place then may begin at once; or when it was to, if it dies while it waits for that.
        """
        assert self.origin is not None
        with self._acting:
            now, buried = time.monotonic() - self.origin, {rank for rank, *_ in self.dead}
            new = [rank for rank in ranks if rank not in self.gone and rank not in buried]
            if any(self._ended(rank) for rank in new):
                return False
            for rank in sorted({*ranks} & {*self.gone} - buried):
                if self.goes_on(self.gone[rank]):
                    self.dead.append((rank, self.gone[rank], now))
            if new:
                kind = Unforeseen if since is None else Silent
                fault = kind(now if since is None else since, now, -1, tuple(new))
                self._faults.befell(fault, new)
                self.by_themselves += len(new)
                (self._lose if self.goes_on(fault) else self._fails)(new, fault)
            return bool(new or self.dead)  # else somebody waits until a fault of the scenario is noticed

    def _befalls(self) -> None:
        fault = self._faults.pop()
        ranks = [rank for rank in fault.ranks if rank not in self.gone and not self._ended(rank)]
        known = noticed(self._scenario, fault)
        if ranks:
            self._faults.befell(fault, ranks)
            goes_on = self.goes_on(fault)
            if known < inf and not isinstance(fault, Cut):  # who is cut off may still come to its end
                self.gone |= dict.fromkeys(ranks, fault)  # first: the launcher looks who has died
            if isinstance(fault, Crash):
                self._crash(fault, ranks, goes_on)
            elif isinstance(fault, Hang):
                self._signal(ranks, signal.SIGSTOP)
                if known == inf:
                    self.still |= {*ranks}
                    self.stopped |= self.still
                    self._at(fault.until, lambda: self._let_go_on(ranks))
            if known < inf:
                if not goes_on:
                    self._at(known, lambda: self._fails(self._befallen(ranks, fault), fault))
                elif not isinstance(fault, Crash):  # what it still does counts no longer
                    self._at(known, lambda: self._lose(self._befallen(ranks, fault), fault))
        if isinstance(fault, Cut):
            self._cut([*self.cuts, fault])
            self._at(fault.until, lambda: self._cut([each for each in self.cuts if each is not fault]))
        self._await_next()

    def _let_go_on(self, ranks: Sequence[int]) -> None:
        self._signal([rank for rank in ranks if rank not in self.gone], signal.SIGCONT)
        self.still -= {*ranks}

    def _crash(self, fault: Crash, ranks: Sequence[int], goes_on: bool) -> None:
        def gone() -> None:
            if goes_on:
                self._lose(ranks, fault)
            else:
                self._signal(ranks, signal.SIGKILL)

        if fault.lingers:
            self._signal(ranks, signal.SIGSTOP)
            self._at(killed(self._scenario, fault), gone)
        else:
            gone()

    def _befallen(self, ranks: Sequence[int], fault: Fault) -> Sequence[int]:
        """Those of them that a fault still befalls: who is cut off may end, or be gone for another reason."""
        if not isinstance(fault, Cut):
            return ranks
        return [rank for rank in ranks if rank not in self.gone and not self._ended(rank)]

    def _fails(self, ranks: Sequence[int], fault: Fault) -> None:
        if ranks:
            self.gone |= dict.fromkeys(ranks, fault)
            self.failed = fault

    def _lose(self, ranks: Sequence[int], fault: Fault) -> None:
        """Kill them; the job goes on without them until they are back."""
        assert self.origin is not None
        self.gone |= dict.fromkeys(ranks, fault)
        self._signal(ranks, signal.SIGKILL)  # first: one that stands still may hold a counter's lock
        absence.say(self._store, ranks, gone=True)
        now = time.monotonic() - self.origin
        for rank in ranks:
            self.dead.append((rank, fault, now))
        if fault.until <= now:
            self._are_back(ranks)
        else:
            self._at(fault.until, lambda: self._are_back(ranks))

    def _are_back(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self.gone.pop(rank, None)
        absence.say(self._store, ranks, gone=False)  # their links are there again

    def _cut(self, cuts: list[Cut]) -> None:
        if self._bed is not None and cuts != self.cuts:
            self._bed.cut(lambda source, to: any(each.separated(source, to) for each in cuts))
        self.cuts = cuts

    def _signal(self, ranks: Sequence[int], number: signal.Signals) -> None:
        for rank in ranks:
            pid = self._processes[rank].pid
            if pid is not None and self._processes[rank].is_alive():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
