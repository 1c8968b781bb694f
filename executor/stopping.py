"""What a process of a real run knows of its end: from the clock, and from what all say in the store."""

from lockstep.executor.stores import Store
from lockstep.job.plan import Plan

_EVERY_S = 0.05  # how often the store is asked
_STOP = "stop"


class Stopping:
    """Of one process."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.done_share = 0.0  # of the run
        self._plan, self._stop, self._store = plan, plan.scenario.stop, store
        self._looked = 0.0
        self._over = False  # whether the end of the run has been seen
        self._leaving = ""  # how workers leave the run, once that is settled

    def over(self, now: float) -> bool:
        """Whether the run's time is up, or somebody has said that it is over."""
        stop = self._stop
        if stop.time is not None:
            self.done_share = now / stop.time
            self._over = self._over or now >= stop.time
        said_elsewhere = stop.updates is not None or stop.target_accuracy is not None
        if said_elsewhere and not self._over and now - self._looked >= _EVERY_S:
            self._looked = now
            self._over = bool(self._store.check([_STOP]))
        return self._over

    def say(self) -> None:
        """Tell all that the run is over."""
        self._store.set(_STOP, "1")

    def alone(self) -> bool:
        """Whether workers leave the run each by itself."""
        return self._claim("alone")

    def together(self) -> bool:
        """Whether they leave it together, because they meet in native collectives."""
        return self._claim("together")

    def _claim(self, how: str) -> bool:
        """It is settled by the first who asks."""
        if not self._leaving:
            self._leaving = self._store.compare_set("leaving", "", how).decode()
        return self._leaving == how

    def count(self, name: str) -> int:
        """See `job.ending.Count`."""
        sum_ = int(self._store.add(name, 1))
        if name == "mini-batches" and self._plan.quota.together:
            self.done_share = sum_ / self._plan.quota.together
        return sum_
