"""The part of a cluster that can be measured, and that a profile holds: the network, and what work costs."""

from typing import Annotated, Literal

from pydantic import Field

from lockstep.scenarios.network import Network
from lockstep.scenarios.section import Section
from lockstep.scenarios.units import Bandwidth, Duration

CodecName = Literal["fp16", "bf16", "int8", "e3m0", "2-bit", "1-bit", "top-k", "random-k"]


class CodecCost(Section):
    """Bytes of the plain vector that a node encodes, and decodes, in a second; None: at once."""

    encode: Bandwidth | None = None
    decode: Bandwidth | None = None


class Machine(Section):
    """The network between hosts, and what work on them costs.

    Applying an update (or adding two vectors in a collective) takes `apply_overhead` (s) and the bytes that
    it touches ÷ `memory_bandwidth` (bytes/s; None: no time), encoding and decoding as long as `codecs` says;
    all of these one at a time on a node. Each pass of a split model takes `pass_overhead` (s) besides its
    share of a gradient's time; each gradient takes `exchange_overhead` (s) more where there are several
    replicas. With `cores_per_host` all that is computed on a host shares that many cores.
    """

    network: Network = Network()
    cores_per_host: Annotated[int, Field(ge=1)] | None = None
    memory_bandwidth: Bandwidth | None = None
    apply_overhead: Duration = 0.0
    pass_overhead: Duration = 0.0
    exchange_overhead: Duration = Field(
        0.0, description="what a gradient takes more where there are others to exchange it with"
    )
    codecs: dict[CodecName, CodecCost] = Field({})
