"""The cores of hosts, shared by the processes that compute on them: processor sharing.

Of m processes that compute on a host of c cores each runs at min(1, c / m) of its speed alone: a max-min fair
share of a link that carries c core-seconds per second, reached over a process's own link of 1.

Not modelled: time slices, priorities, caches and memory bandwidth.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial

import simpy

from lockstep.job.events import Event
from lockstep.simulator.events import soon
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Flow, Link
from lockstep.strategies.resource import ResourceId


class Cores:
    """`per_host` cores (None: enough for all) on every host; `host_of[rank]` is the host of a process.

    `always`: processes compete with more than each other, so that a host with a core for each is shared too.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        host_of: Sequence[int],
        per_host: float | None,
        always: bool = False,
    ) -> None:
        self.environment = environment
        self.flows = Flows(environment)
        self._paths: dict[int, tuple[Link, Link]] = {}
        self._under_way: dict[int, Flow] = {}
        if per_host is None:
            return
        crowded = {host for host, processes in Counter(host_of).items() if always or processes > per_host}
        hosts = {host: Link(ResourceId("other", "cores of host", host), per_host) for host in sorted(crowded)}
        for rank, host in enumerate(host_of):
            if host in crowded:
                self._paths[rank] = hosts[host], Link(ResourceId("other", "core of rank", rank), 1.0)

    def shared(self, rank: int) -> bool:
        """Whether the host of a process may have more processes that compute than cores."""
        return rank in self._paths

    def beside(self, rank: int) -> tuple[Link, Link]:
        """What work goes over that is no gradient of a process: its host's cores, and one for itself."""
        return self._paths[rank][0], Link(ResourceId("other", "core beside rank", rank), 1.0)

    def compute(self, rank: int, milestones: Sequence[float]) -> list[Event]:
        """Let a process whose cores are shared compute; what happens when it has done so much work.

        Milestones are core-seconds from the beginning, in ascending order.
        """
        events = [Event() for _ in milestones]

        def go_on(number: int) -> None:
            self._under_way.pop(rank, None)
            if number:
                soon(self.environment, events[number - 1])
            if number == len(milestones):
                return
            work = milestones[number] - (milestones[number - 1] if number else 0.0)
            if work:
                self._under_way[rank] = self.flows.start(self._paths[rank], work, partial(go_on, number + 1))
            else:
                go_on(number + 1)

        go_on(0)
        return events

    def give_up(self, rank: int) -> None:
        """End what a process computes."""
        flow = self._under_way.pop(rank, None)
        if flow is not None:
            self.flows.cancel(flow)


class InTurn:
    """Pieces of work of one process, beside its gradients: each begins when the one before is done."""

    def __init__(self, cores: Cores, rank: int) -> None:
        self._cores, (self._host, self._alone) = cores, cores.beside(rank)
        self._pieces: deque[tuple[float, float, Callable[[], object], Callable[[], object]]] = deque()
        self._under_way: Flow | None = None

    def do(
        self, seconds: float, core_s: float, begun: Callable[[], object], done: Callable[[], object]
    ) -> None:
        """Call functions as a piece begins, and as it is done: after so many seconds, where a core is free.

        core_s: for how many of them one is needed; else the process only waits.
        """
        self._pieces.append((seconds, core_s, begun, done))
        if len(self._pieces) == 1:
            self._begin()()

    def _begin(self) -> Callable[[], object]:
        """Begin the next piece; what is to be called then."""
        seconds, core_s, begun, _ = self._pieces[0]
        core = Link(self._alone.id, core_s / seconds) if core_s < seconds else self._alone
        self._under_way = self._cores.flows.start((self._host, core), core_s, self._done)
        return begun

    def _done(self) -> None:
        *_, done = self._pieces.popleft()
        self._under_way = None
        if self._pieces:
            begun = self._begin()
            done()
            begun()
        else:
            done()

    def give_up(self) -> None:
        """End what is under way, and what was to come."""
        self._pieces.clear()
        if self._under_way is not None:
            self._cores.flows.cancel(self._under_way)
            self._under_way = None
