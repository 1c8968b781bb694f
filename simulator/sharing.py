"""Which cores the work of a run shares: gradients, updates, codecs and messages."""

from collections.abc import Sequence

import simpy

from lockstep.scenarios.schema import Cluster
from lockstep.simulator.cores import Cores


class Sharing:
    """`gradients`: the hosts' cores, on which gradients take their time.

    `work`: those of updates and codecs; None: these take none. `messages`: those of messages, likewise.
    `machine`: where each gradient really takes `really_s` core-seconds, besides; None: nowhere.
    `update_waits_s`: how long an update's overhead only waits.
    """

    def __init__(self, environment: simpy.Environment, hosts: Sequence[int], cluster: Cluster) -> None:
        costs = cluster.network.processing
        beside = costs is not None and costs.cores is None  # messages are on the cores that compute
        self.gradients = Cores(environment, hosts, cluster.cores_per_host, beside)
        self.work: Cores | None = self.gradients
        self.messages: Cores | None = None
        self.machine: Cores | None = None
        self.really_s = self.update_waits_s = 0.0
        if costs is None:
            return
        if beside:
            self.messages = self.gradients
        else:  # one machine, with cores of its own
            self.messages = Cores(environment, [0] * len(hosts), costs.cores, always=True)
            # what messages take there has updates in it, if nobody says what these take
            self.work = None if costs.update is None else self.messages
        if costs.gradient:
            self.machine, self.really_s = self.messages, costs.gradient
        if costs.update is not None:
            self.update_waits_s = max(0.0, cluster.apply_overhead - costs.update)

    def of_work(self, rank: int) -> Cores | None:
        """The cores that a process's updates and codecs may have to share."""
        return self.work if self.work is not None and self.work.shared(rank) else None
