"""What SimPy needs of an event, an activity and a loop, and no more: runs consist of little else.

Everything here goes through SimPy's queue, in its order (time, priority, order of scheduling). What SimPy's
own classes do besides costs more than the rest of a run: a method call for each event and for its scheduling,
failed events, processes that wait for each other or are interrupted.
"""

from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from typing import Any

import simpy
from simpy.core import StopSimulation
from simpy.events import URGENT, EventPriority

NORMAL = EventPriority(1)


class Call:
    """A function called after a delay."""

    __slots__ = ("callbacks",)
    _ok = True
    _value = None

    def __init__(
        self,
        environment: simpy.Environment,
        delay: float,
        call: Callable[[Any], object],
        priority: EventPriority = NORMAL,
    ) -> None:
        self.callbacks = [call]
        schedule(environment, self, delay, priority)


class Aside(Call):
    """One that keeps no run going by itself: what makes them, such as endless flows, would go on for ever."""

    __slots__ = ()


class Moment:
    """What one activity waits for: awaiting it gives the value with which it happened."""

    __slots__ = ("_value", "callbacks")
    _ok = True

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Moment], object]] | None = []
        self._value: Any = None

    def __await__(self) -> Generator[Any, Any, Any]:
        if self.callbacks is not None:
            yield self
        return self._value

    def happen(self, value: Any = None) -> None:
        """Go on now, before anything else of this instant."""
        callbacks, self.callbacks = self.callbacks, None
        self._value = value
        for callback in callbacks or ():
            callback(self)

    def then(self, call: Callable[["Moment"], object]) -> None:
        """Call a function too when it happens, which must not have been yet."""
        assert self.callbacks is not None
        self.callbacks.append(call)

    def soon(self, environment: simpy.Environment, value: Any = None) -> None:
        """Go on in this instant, after what is due already."""
        self._value = value
        schedule(environment, self, 0.0)


def schedule(
    environment: simpy.Environment, event: Any, delay: float, priority: EventPriority = NORMAL
) -> None:
    """Let an event happen after a delay: `environment.schedule`, faster, and for every kind of event."""
    heappush(environment._queue, (environment._now + delay, priority, next(environment._eid), event))


def pause(environment: simpy.Environment, seconds: float) -> Moment:
    """A moment that happens after a while; raises ValueError where that would be in the past."""
    if not seconds >= 0:
        raise ValueError(f"a pause of {seconds} s")
    moment = Moment()
    schedule(environment, moment, seconds)
    return moment


class Activity:
    """Drives a coroutine from moment to moment; `failed` is told soon of an exception that ends it."""

    __slots__ = ("_environment", "_failed", "_go_on", "_send", "alive")

    def __init__(
        self,
        environment: simpy.Environment,
        program: Coroutine[Any, Any, None],
        failed: Callable[[BaseException], object],
    ) -> None:
        self.alive = True
        self._environment = environment
        self._send, self._failed, self._go_on = program.send, failed, self._resume
        Call(environment, 0.0, self._go_on, URGENT)

    def _resume(self, _: Any) -> None:
        try:
            awaited = self._send(None)
        except StopIteration:
            self.alive = False
        except BaseException as error:
            self.alive = False
            failure = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            Call(self._environment, 0.0, lambda _: self._failed(failure))
        else:
            awaited.callbacks.append(self._go_on)


class Environment(simpy.Environment):
    """SimPy's, for events that do not fail."""

    def run(self, until: None = None) -> None:  # type: ignore[override]
        """`step` until there is no event left or StopSimulation is raised, without a call for each event."""
        queue = self._queue
        try:
            while queue:
                self._now, _, _, event = heappop(queue)
                callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
                for callback in callbacks:
                    callback(event)
        except StopSimulation:
            pass
