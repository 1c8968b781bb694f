"""How a run ends: who may take another mini-batch, whose part is over, when nobody has anything left to do.

A state machine without clock, messages or processes. What several processes have to agree on are two counts
(`Count`): a dictionary where all nodes are in one process, a store where they are not. An `Ending` can stand
for all nodes of a run, or for one of them.
"""

from collections import Counter
from collections.abc import Callable

from lockstep.job.plan import Plan

Count = Callable[[str], int]
"""Adds one to the count of that name, among all nodes of the run, and gives the sum."""


class Ending:
    """The ends that `stop` of a job's scenario sets; its time is the clock's to watch.

    `over` is called once, by whoever makes the last update of all.
    """

    def __init__(self, plan: Plan, count: Count, over: Callable[[], object]) -> None:
        self.quota, self.limit = plan.quota, plan.scenario.stop.updates
        self.last = self.limit  # the version with which the run ends, once all owners have it
        self.versions: dict[int, int] = {}  # of each owner that has made updates
        self.made = 0  # updates that brought the end closer
        self._owners, self._relayed = len(plan.owners.ranks), plan.relayed
        self._count, self._over = count, over
        self._reserved: set[int] = set()

    def available(self, worker: int, taken: int) -> bool:
        """Whether a worker that has used `taken` mini-batches has another: it is then the worker's to use."""
        each, together = self.quota.each, self.quota.together
        if each is not None and taken >= each:
            return False
        if together is not None and worker not in self._reserved:
            if self._count("mini-batches") > together:
                return False
            self._reserved.add(worker)
        return True

    def use(self, worker: int) -> None:
        """The worker computes the gradient of the mini-batch that it has."""
        self._reserved.discard(worker)

    def updated(self, owner: int, version: int, idle: bool = False) -> bool:
        """An owner's parameters have come to a version; whether the node that made the update retires.

        `idle`: its program has ended, and it only answers. With relays only the last owner retires: at the
        others more updates may be needed of the same pushes.
        """
        before, self.versions[owner] = self.versions.get(owner, 0), version
        if self.last is None:
            return False
        self.made += 1
        if version < self.last:
            return False
        everyone = before < self.last and self._arrives()
        return version == self.limit and (everyone or not self._relayed) and not idle

    def reached(self, version: int) -> None:
        """The parameters at a version are good enough: the run ends when all owners have come to it."""
        self.last = version
        for behind in self.versions.values():
            if behind >= version:
                self._arrives()

    def retired(self, owner: int) -> bool:
        """Whether an owner has made all updates that there are to be."""
        return self.limit is not None and self.versions.get(owner, 0) >= self.limit

    def _arrives(self) -> bool:
        """An owner has come to the last version; whether all have."""
        everyone = self._count("owners at the last version") == self._owners
        if everyone:
            self._over()
        return everyone


class Endless(Ending):
    """For a run whose end is told from elsewhere: nobody retires, nothing is over."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, counting(), lambda: None)
        self.last = self.limit = None


def counting() -> Count:
    """Counts of nodes that are all in this process."""
    counts: Counter[str] = Counter()

    def count(name: str) -> int:
        counts[name] += 1
        return counts[name]

    return count
