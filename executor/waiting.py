"""What a thread of a node waits for in real time."""

import time
from threading import Event as Flag

from lockstep.job.events import Event


class Blocking(Event):
    """An event that becomes due by itself; a thread can block until then.

    Somebody then lets it happen, with its `value`."""

    __slots__ = ()

    def due(self) -> bool:
        """Whether it may happen."""
        raise NotImplementedError

    def block(self) -> None:
        """Return when it is due; raises what keeps it from ever being."""
        raise NotImplementedError


class Timer(Blocking):
    """Due at an instant of the monotonic clock, s."""

    __slots__ = ("at",)

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at

    def due(self) -> bool:  # noqa: D102
        return time.monotonic() >= self.at

    def block(self) -> None:  # noqa: D102
        left_s = self.at - time.monotonic()
        if left_s > 0:  # even a sleep of 0 s takes 70 us
            time.sleep(left_s)


class Alarm(Timer):
    """Nothing that its node waits for."""

    __slots__ = ()


class Signal(Blocking):
    """Due when another thread says so, or has failed."""

    __slots__ = ("failure", "flag")

    def __init__(self) -> None:
        super().__init__()
        self.flag = Flag()
        self.failure: BaseException | None = None

    def due(self) -> bool:  # noqa: D102
        return self.flag.is_set() and self.failure is None

    def block(self) -> None:  # noqa: D102
        self.flag.wait()
        if self.failure is not None:
            raise self.failure

    def fail(self, error: BaseException) -> None:
        """It will never be."""
        self.failure = error
        self.flag.set()
