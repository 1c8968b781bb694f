"""A scenario's network on this machine: each host is a network namespace, and every cable is shaped.

One more namespace has the switches: bridges that neither learn nor flood, so that frames take the fabric's
ways and no other. Processes of one host talk over its loopback; nothing leads out of the namespaces. What
processes and launcher tell each other does not go there, but through Unix sockets and files. More:
docs/testbed.md.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from lockstep.executor import shaping, wiring
from lockstep.executor.fabric import cards, fabric
from lockstep.executor.namespaces import Namespace, in_a_thread, new_namespace
from lockstep.scenarios import Cluster, Scenario, ScenarioError

_MOST_HOSTS = 511  # an interface has at most 65,520 classes: one for each pair of hosts, perhaps of two racks


@dataclass(frozen=True)
class Seat:
    """Where a process of a run is: on this machine, or at an address in the namespace of its host."""

    address: str | None = None
    namespace: Namespace | None = None

    def take(self) -> None:
        """Move the calling thread there, before it starts those that talk to others."""
        if self.namespace is not None:
            self.namespace.enter()
            os.environ["GLOO_SOCKET_IFNAME"] = wiring.CARD


class Testbed:
    """The network of a run on a cluster: built on entry, gone at the end.

    Raises ScenarioError if this machine cannot have one.
    """

    __test__ = False  # pytest: not one of yours

    def __init__(self, cluster: Cluster, hosts: Sequence[int]) -> None:
        """hosts: of every rank, the number of its host."""
        self.cluster, self.host_of = cluster, hosts
        self.fabric = fabric(cluster, max(self.host_of) + 1)
        self._spaces: list[Namespace] = []  # the hosts', and then the switches'

    def __enter__(self) -> Self:
        try:
            in_a_thread(self._build)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        for space in self._spaces:
            space.close()

    def seat(self, rank: int) -> Seat:
        """Where the process of that rank is."""
        host = self.host_of[rank]
        return Seat(wiring.address(host), self._spaces[host])

    def cut(self, separated: Callable[[int, int], bool]) -> None:
        """From now on frames get from one host to another unless they are `separated`."""
        for host in self.fabric.hosts:
            reached = {other: not separated(host, other) for other in self.fabric.hosts if other != host}
            self._spaces[host].run(_tell, reached)

    def warnings(self) -> list[str]:
        """What of the scenario's network it does not have, and whether it has lost frames."""
        network, shape = self.cluster.network, self.cluster.network.topology
        latencies = [network.latency, getattr(shape, "latency", 0.0)]
        latencies += [pair.latency for pair in getattr(shape, "pairs", ())]
        found = []
        if any(latencies):
            found.append("cluster.network.latency: the testbed has this machine's own instead")
        if network.burst is not None:
            found.append("cluster.network.burst: the testbed has its own instead (docs/testbed.md)")
        if network.jitter is not None:
            found.append("cluster.network.jitter: the testbed has this machine's own instead")
        if network.queue:
            found.append("cluster.network.queue: the testbed has its own instead (docs/testbed.md)")
        if network.tcp is not None:
            found.append("cluster.network.tcp: the testbed has this machine's own, and cards that are fair")
        if network.intra_host is not None:
            found.append("cluster.network.intra_host: the testbed has this machine's loopback instead")
        if None in cards(self.cluster)[: len(self.fabric.hosts)]:
            found.append("cluster.network.bandwidth is not given: a card is as fast as this machine makes it")
        lost = sum(space.run(_lost) for space in self._spaces)
        if lost:
            found.append(f"{lost:,} frames were lost in the testbed's queues")
        return found

    def _build(self) -> None:
        """Build it; the thread that does is in one of its namespaces then."""
        if sys.platform != "linux":
            raise ScenarioError("the testbed needs Linux", key="--testbed")
        with _needed("network namespaces"):
            for _ in [*self.fabric.hosts, "switches"]:
                self._spaces.append(new_namespace())
        with _needed("the package pyroute2"):
            from pyroute2 import IPRoute
        self._spaces[-1].enter()
        with IPRoute() as ip:
            with _needed("bridges"):
                wiring.make_switches(ip, self.fabric)
            with _needed("pairs of interfaces (veth)"):
                wiring.lay_cables(ip, self.fabric, self._spaces)
            with _needed("token buckets (sch_htb, cls_u32)"):
                wiring.plug_in(ip, self.fabric)
        with _needed("addresses, neighbours and routes of so many hosts"):
            for host in self.fabric.hosts:
                self._spaces[host].enter()
                with IPRoute() as ip:
                    wiring.set_up(ip, self.fabric, host)


def check(scenario: Scenario) -> None:
    """Raise ScenarioError for a network that no testbed can have."""
    network, servers = scenario.cluster.network, scenario.cluster.servers
    if network.duplex == "half":
        _refuse("the testbed's cards are full duplex; leave it out", "duplex")
    if network.varying:
        _refuse("the testbed's bandwidths do not vary; leave it out", "varying")
    if network.background:
        _refuse("the testbed has no traffic of others; leave it out", "background")
    if scenario.cluster.hosts + servers.hosts > _MOST_HOSTS:
        raise ScenarioError(f"the testbed has at most {_MOST_HOSTS} hosts", key="cluster.workers")


def _refuse(problem: str, key: str) -> None:
    raise ScenarioError(problem, key=f"cluster.network.{key}")


@cache
def require() -> None:
    """Raise ScenarioError if this machine cannot have a testbed: build a very small one."""
    network = {"bandwidth": "1 Gbit/s"}
    cluster = Cluster.model_validate({"workers": 1, "network": network, "compute": "measured"})
    with Testbed(cluster, [0]):
        pass


@contextmanager
def _needed(what: str) -> Iterator[None]:
    """Say in one line what a testbed needs that this machine does not have."""
    try:
        yield
    except ImportError as error:
        raise ScenarioError(f"the testbed needs {what}: {error}", key="--testbed") from None
    except Exception as error:
        # a NetlinkError, or an OSError
        number = getattr(error, "code", None) or getattr(error, "errno", None)
        if number is None:
            raise
        reason = f"this kernel has no {what}: {os.strerror(number)}"
        if number in (errno.EPERM, errno.EACCES):
            reason = "the testbed needs root: the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN"
        elif number in (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.ENOBUFS):
            reason = f"no room for the testbed's {what}: {os.strerror(number)}"
        raise ScenarioError(reason, key="--testbed") from None


def _tell(reached: Mapping[int, bool]) -> None:
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        wiring.tell(ip, reached)


def _lost() -> int:
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        return shaping.lost(ip)
