"""How a run ends: who may take another mini-batch, whose part is over, who waits in vain, when all is over.

A state machine without clock, messages or processes: it is told of steps, updates, the time, evaluations, and
members that have left. What several processes have to agree on are two counts
(`Count`): a dictionary where all nodes are in one process, a store where they are not. An `Ending` can stand
for all nodes of a run, or for one of them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lockstep.job.plan import Plan
from lockstep.workloads import Evaluation

Count = Callable[[str], int]
"""Adds one to the count of that name, among all nodes of the run, and gives the sum."""

ARRIVED = "owners at the last version"
"""The name of that count."""
NONE: Mapping[int, int] = MappingProxyType({})


class Ending:
    """The ends that `stop` of a job's scenario sets. `over`: whether the run is."""

    def __init__(
        self, plan: Plan, count: Count, tell: Callable[[], object], versions: Mapping[int, int] = NONE
    ) -> None:
        """tell: called by whoever makes the last update of all, unless the run is over already.

        versions: of owners that go on from a checkpoint.
        """
        self.over = False
        self.quota, self.limit = plan.quota, plan.scenario.stop.updates
        self.last = self.limit  # the version with which the run ends, once all owners have it
        self.versions = dict(versions)  # of each owner that has made updates
        self.made = 0  # updates that brought the end closer
        self._owners = len(plan.owners.ranks)
        copied = plan.has_servers and plan.scenario.cluster.servers.copies > 1
        # owners may need each other's workers, also one that goes back to its checkpoint and is behind
        self._linked = plan.relayed or copied or len(plan.groups) > 1 or plan.goes_on
        self._places = plan.places
        self._count, self._tell = count, tell
        self._reserved: dict[int, int] = {}  # the mini-batch that is each worker's
        self._until, self._target = plan.scenario.stop.time, plan.scenario.stop.goal
        self._roles = plan.roles
        self._gone: set[int] = set()
        self._behind = 0  # owners that have been counted as arrived, and went back
        self._arrived = 0  # as counted last
        self._again: Counter[str] = Counter()  # mini-batches of a pool that were lost, and are in it again

    def available(self, worker: int, taken: int) -> bool:
        """Whether a worker that has used `taken` mini-batches has another: it is then the worker's to use."""
        each, together = self.quota.each, self.quota.together
        if (each is not None and taken >= each) or self.retired(worker):
            return False
        if together is not None and self._reserved.get(worker) != taken:
            name = pool(self._places[worker][0])
            if self._count(name) - self._again[name] > together:
                return False
            self._reserved[worker] = taken
        return True

    def updated(self, owner: int, version: int, idle: bool = False) -> bool:
        """An owner's parameters have come to a version; whether the node that made the update retires.

        `idle`: its program has ended, and it only answers. With relays or slices only the last owner retires:
        at the others more updates may be needed of the same workers.
        """
        before, self.versions[owner] = self.versions.get(owner, 0), version
        if self.last is None:
            return False
        self.made += 1
        if version < self.last:
            return False
        everyone = before < self.last and self._arrives()
        return version == self.limit and (everyone or not self._linked) and not idle

    def at(self, now: float) -> bool:
        """It is `now`, in s since the start; whether the run is over."""
        if self._until is not None and now >= self._until:
            self.over = True
        return self.over

    def said(self) -> None:
        """Another process says that the run is over."""
        self.over = True

    def left(self, rank: int) -> None:
        """A node will send no more."""
        self._gone.add(rank)

    def in_vain(self, rank: int, sender: int | None) -> bool:
        """Whether a node waits in vain for a message (None: anybody's): all below it have left."""
        role = self._roles[rank]
        below = (*role.children, *role.followers)
        return bool(below) and self._gone.issuperset(below) and sender not in role.parents

    def matters(self, version: int) -> bool:
        """Whether it makes a difference how good the parameters at a version are."""
        return self._target is not None and (self.last is None or version < self.last)

    def evaluated(self, version: int, found: Evaluation) -> None:
        """They have been evaluated: if they are good enough, the run ends when all owners are there."""
        if self._target is None or not self.matters(version):
            return
        if not self._target.reached(found.of(self._target.metric)):
            return
        self.last = version
        for behind in self.versions.values():
            if behind >= version:
                self._arrives()

    def retired(self, owner: int) -> bool:
        """Whether an owner has made all updates that there are to be."""
        return self.limit is not None and self.versions.get(owner, 0) >= self.limit

    def goes_back(self, owner: int, version: int) -> None:
        """An owner begins anew with an earlier version: if it was among those that had come to the last one,
        it is no longer."""
        self._behind += self.last is not None and self.versions.get(owner, 0) >= self.last > version
        self.versions[owner] = version

    def again(self, worker: int, taken: int, step: int) -> None:
        """A worker that has used `taken` mini-batches has lost those from `step` on: anyone may take them."""
        unused = self._reserved.pop(worker, None) == taken
        self._again[pool(self._places[worker][0])] += taken + unused - step

    def lost(self, owner: int) -> None:
        """An owner is gone for good: nobody waits for its updates."""
        if self.last is None or self.versions.get(owner, 0) < self.last:
            self.versions.pop(owner, None)
            self._owners -= 1
            self._look()

    def _arrives(self) -> bool:
        """An owner has come to the last version; whether all have."""
        self._arrived = self._count(ARRIVED)
        return self._look()

    def _look(self) -> bool:
        everyone = self._arrived - self._behind == self._owners
        if everyone and not self.over:
            self.over = True
            self._tell()
        return everyone


def pool(number: int) -> str:
    """The count of mini-batches that the workers of a slice of the parameters have taken from a common
    pool."""
    return f"mini-batches of slice {number}" if number else "mini-batches"


def counting(begun: Mapping[str, int] = MappingProxyType({})) -> Count:
    """Counts of nodes that are all in this process; those with which they begin."""
    counts: Counter[str] = Counter(begun)

    def count(name: str) -> int:
        counts[name] += 1
        return counts[name]

    return count
