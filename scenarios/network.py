"""The network between the machines: `cluster.network`. Bandwidths are bytes/s, times seconds."""

from pydantic import Field

from scenarios.section import Section
from scenarios.units import Bandwidth, Duration


class Network(Section):
    """`bandwidth` (bytes/s; None: unlimited) is per direction per NIC, `latency` (s) one way per message.

    `message_overhead` (s) is added to every message; `goodput` is the share of bandwidth left for data.
    """

    bandwidth: Bandwidth | None = None
    latency: Duration = 0.0
    message_overhead: Duration = 0.0
    goodput: float = Field(1.0, gt=0, le=1)
