"""Workers that are slower than others: `cluster.stragglers`."""

from pydantic import Field

from scenarios.section import Section


class Straggler(Section):
    """Worker `worker` (counted from 0) takes `slowdown` times as long."""

    worker: int = Field(ge=0, description="the worker's number from 0, such as 'worker: 3'")
    slowdown: float = Field(
        gt=0, le=1e6, description="how many times as long it takes, such as 'slowdown: 3'"
    )
