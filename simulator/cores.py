"""The cores of hosts, shared by the processes that compute on them: processor sharing.

Of m processes that compute on a host of c cores each runs at min(1, c / m) of its speed alone: a max-min fair
share of a link that carries c core-seconds per second, reached over a process's own link of 1.

Not modelled: time slices, priorities, caches and memory bandwidth; what messages cost the cores.
"""

from collections import Counter
from collections.abc import Sequence

import simpy

from simulator.flows import Flows, Link


class Cores:
    """`per_host` cores (None: enough for all) on every host; `host_of[rank]` is the host of a process."""

    def __init__(self, environment: simpy.Environment, host_of: Sequence[int], per_host: int | None) -> None:
        self._environment = environment
        self._flows = Flows(environment)
        self._paths: dict[int, tuple[Link, Link]] = {}
        if per_host is None:
            return
        crowded = {host for host, processes in Counter(host_of).items() if processes > per_host}
        hosts = {host: Link(f"host {host}'s cores", float(per_host)) for host in sorted(crowded)}
        for rank, host in enumerate(host_of):
            if host in crowded:
                self._paths[rank] = hosts[host], Link(f"rank {rank}'s core", 1.0)

    def shared(self, rank: int) -> bool:
        """Whether the host of a process may have more processes that compute than cores."""
        return rank in self._paths

    def compute(self, rank: int, work: float) -> simpy.Event:
        """What happens when a process, whose cores are shared, has done `work` core-seconds from now on."""
        done = simpy.Event(self._environment)
        if work:
            self._flows.start(self._paths[rank], work, done.succeed)
        else:
            done.succeed()
        return done
