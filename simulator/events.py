"""What SimPy needs of an event, and no more: runs consist of little else."""

from collections.abc import Callable, Generator
from typing import Any

import simpy
from simpy.events import EventPriority

NORMAL = EventPriority(1)


class Call:
    """A function called after a delay."""

    __slots__ = ("callbacks",)
    _ok = True

    def __init__(
        self,
        environment: simpy.Environment,
        delay: float,
        call: Callable[[simpy.Event], object],
        priority: EventPriority = NORMAL,
    ) -> None:
        self.callbacks = [call]
        environment.schedule(self, priority, delay)  # type: ignore[arg-type]


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
        return (yield self)

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
        environment.schedule(self, NORMAL, 0.0)  # type: ignore[arg-type]


def pause(environment: simpy.Environment, seconds: float) -> Moment:
    """A moment that happens after a while; raises ValueError where that would be in the past."""
    if not seconds >= 0:
        raise ValueError(f"a pause of {seconds} s")
    moment = Moment()
    environment.schedule(moment, NORMAL, seconds)  # type: ignore[arg-type]
    return moment
