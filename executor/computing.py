"""What the device of a process computes: how long that takes, really or as emulated, and when it is done."""

import time
from collections.abc import Callable, Sequence
from math import inf, nan
from typing import TYPE_CHECKING, Any

from lockstep.executor.backward import Beside
from lockstep.executor.devices import settle
from lockstep.executor.turns import Turns
from lockstep.executor.waiting import Timer
from lockstep.job.port import PassOf, Work
from lockstep.job.segments import PassTimes, Segments
from lockstep.strategies.node import Vector
from lockstep.workloads import Learner
from lockstep.workloads.base import Ready
from lockstep.workloads.compute_time import ComputeTime
from lockstep.workloads.slowness import slowness
from lockstep.workloads.streams import accelerated

if TYPE_CHECKING:
    from lockstep.executor.port import RealPort

_MOST_LATE_S = 1e-3  # what wakes up later than that was disturbed


class Computing:
    """The device of a node in real time."""

    def __init__(self, port: "RealPort", times: ComputeTime | None) -> None:
        """times: how long gradients are to take; None: as long as they take."""
        plan, rank = port.plan, port.rank
        self._port, self.slowness = port, slowness(plan.scenario).get(rank)
        self.backward_share = getattr(plan.scenario.cluster.compute, "backward", None) or 0.0
        self.segments: Segments | None = None  # of a gradient in passes
        self.take(times)
        self.overruns: list[float] = []  # real ÷ drawn duration of gradients that took too long
        self.longest_s = 0.0  # the longest piece of work
        self.busy_until: float | None = None  # by a pass that is emulated, until something is waited for
        self._late = 0.0  # s: how much later than it was to an emulated gradient has ended
        self._begun: list[Callable[[], None]] = []  # what is done as soon as the activity waits
        self._beside = Beside(port.initial.device)

    def take(self, times: ComputeTime | None) -> None:
        """Let gradients take other times from now on."""
        plan, rank = self._port.plan, self._port.rank
        self.compute_time = times
        self.pass_times = PassTimes(plan, rank, times) if times and rank in plan.stages else None

    def begin(self, turns: Turns) -> None:
        """Do what has been begun, while other activities have their turns."""
        while self._begun:
            do = self._begun.pop(0)
            with turns.others():
                do()

    def drop_all(self) -> None:
        """Do nothing of what has been begun."""
        self._begun, self.busy_until = [], None

    def end(self) -> None:
        """Let the threads end that compute beside others."""
        self._beside.end()

    def warm_up(self, step: int) -> None:
        """Compute a gradient, in each thread and on each stream that gradients are computed with; or passes.

        step: the mini-batch that it begins with, which whoever reads it has read then.
        """
        learner = self._port.learner
        assert learner is not None
        if self.segments is not None and self.segments.warm_up(self._port.rank):
            return
        first = learner.initial()
        learner.gradient(first, self._port.replica, step)
        if accelerated(self._port.initial.device):

            def again(ready: Ready) -> Any:
                return learner.gradient(first, self._port.replica, step, ready)

            self._beside.backward(again, [], lambda: 0.0).done.block()

    def compute(
        self, parameters: Any, step: int, down_to: Sequence[int] = (), of: PassOf | None = None
    ) -> Work:
        """See `job.port.Port.compute`."""
        if self.compute_time is None:
            settle(self._port.initial.device)  # else its time would have the step before in it
        if of is not None:
            return self._pass(parameters, step, of)
        start, learner = self._port.now, self._port.learner
        if down_to and learner is not None and self.compute_time is None and self.slowness is None:
            return self._beside_messages(learner, parameters, step, down_to, start)
        parts = [self._port.at(inf) for _ in down_to]

        def gradient() -> tuple[Vector, float]:
            if learner is None:
                return self._port.initial, nan
            gradient = learner.gradient(parameters, self._port.replica, step)
            settle(gradient.device)
            return gradient, learner.loss

        def ends(end: float) -> None:
            begun = start + (0.0 if self.compute_time is None else self.compute_time.waited)
            seconds = end - begun
            if down_to:
                work.done.value = max(self._port.now, end)
            for part, element in zip(parts, down_to, strict=True):
                done = 1 - self.backward_share * element / len(parameters)
                part.at = self._port.zero + begun + seconds * done

        drawn = None if self.compute_time is None else self.compute_time.draw
        alone = drawn is not None and not down_to  # parts have instants of their own
        work = self._work(gradient, drawn, ends, late=alone)
        if alone:
            work.done.then(self._woke)
        work.parts = parts
        return work

    def _woke(self, done: Any) -> None:
        """An emulated gradient has ended, which was to at `done.at`."""
        self._late = min(max(0.0, time.monotonic() - done.at), _MOST_LATE_S)

    def _pass(self, parameters: Any, step: int, of: PassOf) -> Work:
        """One that needed nothing to be waited for begins when the device has done the one before.

        So an emulated device is kept busy, as a GPU is whose host hands it passes beforehand: what Python
        takes between two passes, and to wake up, is no part of either.
        """
        segments, times, rank = self.segments, self.pass_times, self._port.rank
        assert segments is not None
        drawn = None if times is None else lambda start: times.seconds(start, step, of)
        queued = None if drawn is None else self.busy_until
        work = self._work(lambda: segments.do(rank, parameters, step, of), drawn, self._busy, queued)
        work.kept = lambda: segments.kept(rank, step, of)
        return work

    def _busy(self, until: float) -> None:
        self.busy_until = max(until, self._port.now)  # what took longer than it should is late

    def _work(
        self,
        compute: Callable[[], tuple[Any, float]],
        drawn: Callable[[float], float] | None,
        ends: Callable[[float], None] = lambda end: None,
        begins: float | None = None,
        late: bool = False,
    ) -> Work:
        """Compute, and be done when the time `drawn` for it is over, from when it `begins`, else from now.

        `ends` is told when that is, s on the clock. `late`: less what this process woke up late by before, so
        that all of them together take their time.
        """
        now, done = self._port.now, self._port.at(inf)
        start = now if begins is None else min(begins, now)
        found: list[tuple[Any, float]] = []

        def do() -> None:
            found.append(compute())
            seconds = self._seconds(start, self._port.now - now, drawn)
            end = start + (max(0.0, seconds - self._late) if late else seconds)
            ends(end)
            done.at = self._port.zero + end

        self._begun.append(do)
        return Work(now, None, done, (), lambda: found[0], lambda: self._port.forget(done))

    def later(self, do: Callable[[], None]) -> Timer:
        """Let the device do something as soon as the activity waits; what happens when it has."""
        self._begun.append(do)
        return self._port.at(self._port.now)

    def _seconds(self, start: float, real: float, drawn: Callable[[float], float] | None) -> float:
        """How long work is to take that has taken so long; a straggler waits until it would be done."""
        if drawn is None:
            duration = self.slowness.seconds(start, real) if self.slowness else real
        else:
            duration = drawn(start)
            if real > duration > 0:  # what takes no time there is late, but not too long
                self.overruns.append(real / duration)
        self.longest_s = max(self.longest_s, duration, real)
        return duration

    def _beside_messages(
        self, learner: Learner, parameters: Any, step: int, down_to: Sequence[int], start: float
    ) -> Work:
        """A gradient whose first parts travel while the others are computed."""
        port = self._port
        found = self._beside.backward(
            lambda ready: learner.gradient(parameters, port.replica, step, ready), down_to, lambda: port.now
        )
        port.let_happen(found.done)  # parts happen where they are awaited: on a GPU that is to wait too
        return Work(
            start, None, found.done, found.parts, lambda: (found.gradient, learner.loss), lambda: None
        )
