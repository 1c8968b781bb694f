"""Which cores the work of a run shares: gradients, updates, codecs and messages."""

from collections.abc import Sequence

import simpy

from lockstep.scenarios.schema import Cluster
from lockstep.simulator.cores import Cores


class Sharing:
    """`gradients`: the hosts' cores, on which gradients take their time.

    `messages`: those of messages; None: these take none.
    `machine`: where each gradient really takes `gradient_s` core-seconds, besides; None: nowhere.
    `update_waits_s`: how long an update's overhead only waits.
    A profile that does not say what updates take of a testbed's machine has them in its messages' costs.
    """

    def __init__(self, environment: simpy.Environment, hosts: Sequence[int], cluster: Cluster) -> None:
        costs = cluster.network.processing
        beside = costs is not None and costs.cores is None  # messages are on the cores that compute
        self.gradients = Cores(environment, hosts, cluster.cores_per_host, beside)
        self._work: Cores | None = self.gradients
        self.messages: Cores | None = None
        self.machine: Cores | None = None
        self.gradient_s = self.update_waits_s = 0.0
        if costs is None:
            return
        if beside:
            self.messages = self.gradients
        else:  # one machine, with cores of its own
            self.messages = Cores(environment, [0] * len(hosts), costs.cores, always=True)
            self._work = None if costs.update is None else self.messages
        if costs.gradient:
            self.machine, self.gradient_s = self.messages, costs.gradient
        if costs.update is not None:
            self.update_waits_s = max(0.0, cluster.apply_overhead - costs.update)

    def work_of(self, rank: int) -> Cores | None:
        """The cores that a process's updates and codecs have to share; None: they need not."""
        return self._work if self._work is not None and self._work.shared(rank) else None
