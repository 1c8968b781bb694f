"""What SimPy needs of an event, a timeout, a process and a loop, and no more: runs consist of little else.

Everything here goes through SimPy's queue, in its order (time, priority, order of scheduling). What SimPy's
own classes do besides costs more than the rest of a run: a method call for each event and for its scheduling,
failed events, processes that wait for each other or are interrupted.
"""

import inspect
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, NoReturn

import simpy
from simpy.core import StopSimulation
from simpy.events import URGENT, EventPriority

from lockstep.job.events import Event, Retired

NORMAL = EventPriority(1)


class Timeout:
    """Calls a function after a delay."""

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


class Aside(Timeout):
    """A timeout that the run does not wait for: endless flows, say, make new ones for ever."""

    __slots__ = ()


def schedule(
    environment: simpy.Environment, event: Any, delay: float, priority: EventPriority = NORMAL
) -> None:
    """Let an event happen after a delay: `environment.schedule`, faster, and for every kind of event."""
    heappush(environment._queue, (environment._now + delay, priority, next(environment._eid), event))


class Scheduled(Event):
    """One that happens when SimPy's queue comes to it, and for nothing else."""

    __slots__ = ()


def timeout(environment: simpy.Environment, seconds: float) -> Event:
    """What happens after a while; raises ValueError where that would be in the past."""
    if not seconds >= 0:
        raise ValueError(f"a pause of {seconds} s")
    event = Scheduled()
    queue: list[Any] = environment._queue  # as `schedule`, without a call
    heappush(queue, (environment._now + seconds, NORMAL, next(environment._eid), event))
    return event


def soon(environment: simpy.Environment, event: Event) -> None:
    """Let an event happen in this instant, after what is due already."""
    schedule(environment, event, 0.0)


def _no_more(_: None) -> NoReturn:
    raise Retired


class Process:
    """Drives a coroutine from event to event; `failed` is told soon of an exception that ends it."""

    __slots__ = ("_ended", "_environment", "_failed", "_go_on", "_program", "_send", "alive")

    def __init__(
        self,
        environment: simpy.Environment,
        program: Coroutine[Any, Any, None],
        failed: Callable[[BaseException], object],
        ended: Callable[[], object] | None = None,
    ) -> None:
        self.alive = True
        self._ended = ended  # called when the program comes to its end
        self._environment = environment
        self._program, self._send = program, program.send
        self._failed, self._go_on = failed, self._resume
        Timeout(environment, 0.0, self._go_on, URGENT)

    def leave(self) -> None:
        """The run is over: a program that has not begun never will, of which Python would warn."""
        if inspect.getcoroutinestate(self._program) == inspect.CORO_CREATED:
            self._program.close()

    def kill(self) -> None:
        """It goes on no more, whatever it waits for."""
        self.alive, self._send = False, _no_more
        self._program.close()

    def hold(self, awake: Event) -> None:
        """It stands still: when what it waits for has happened it waits for `awake`, too."""
        self._send = lambda _: awake

    def let_go(self) -> None:
        """It stands still no more."""
        self._send = self._program.send

    def _resume(self, _: Any) -> None:
        try:
            awaited = self._send(None)
        except StopIteration:
            self.alive = False
            if self._ended is not None:
                self._ended()
        except Retired:
            self.alive = False
        except BaseException as error:
            self.alive = False
            failure = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            Timeout(self._environment, 0.0, lambda _: self._failed(failure))
        else:
            awaited.callbacks.append(self._go_on)


class Environment(simpy.Environment):
    """SimPy's, for events that do not fail."""

    __slots__ = ("now",)
    now: float  # SimPy's is a property: a call each time

    def run(self, until: None = None) -> None:  # type: ignore[override]
        """`step` until there is no event left or StopSimulation is raised, without a call for each event."""
        queue = self._queue
        try:
            while queue:
                self.now, _, _, event = heappop(queue)
                callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
                for callback in callbacks:
                    callback(event)
        except StopSimulation:
            pass
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Nothing more will happen."""
        for *_, event in self._queue:
            for callback in event.callbacks or ():
                process = getattr(callback, "__self__", None)
                if isinstance(process, Process):
                    process.leave()


Environment._now = Environment.now  # one place, with the name that SimPy writes to
