"""What the processes of a real run tell each other of its end, in the store."""

from math import inf

from lockstep.executor.stores import Store
from lockstep.job.plan import Plan

_EVERY_S = 0.05  # how often the store is asked
_STOP = "stop"


class Stopping:
    """Of one process."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.done_share = 0.0  # of the run's mini-batches
        self._plan, self._stop, self._store = plan, plan.scenario.stop, store
        self._by_others = self._stop.updates is not None or self._stop.goal is not None
        self._leaving = ""  # how workers leave the run, once that is settled

    def said(self) -> bool:
        """Whether somebody has said that the run is over."""
        return self._by_others and self._store.check([_STOP])

    def look_at(self, now: float) -> float:
        """When the run may be over next: at its own end, or if the store says so, asked now and then only."""
        own = inf if self._stop.time is None else self._stop.time
        return min(own, now + _EVERY_S) if self._by_others else own

    def alone(self) -> bool:
        """Whether workers leave the run each by itself."""
        return self._claim("alone")

    def together(self) -> bool:
        """Whether they leave it together, because they meet in native collectives."""
        return self._claim("together")

    def _claim(self, how: str) -> bool:
        """The first process that asks decides."""
        if not self._leaving:
            self._leaving = self._store.compare_set("leaving", "", how).decode()
        return self._leaving == how

    def count(self, name: str) -> int:
        """See `job.ending.Count`."""
        sum_ = int(self._store.add(name, 1))
        if name == "mini-batches" and self._plan.quota.together:
            self.done_share = sum_ / self._plan.quota.together
        return sum_


def say(store: Store) -> None:
    """Tell all processes of a run that it is over."""
    store.set(_STOP, "1")
