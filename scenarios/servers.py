"""Parameter servers: `cluster.servers`."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from lockstep.scenarios.section import Count, Factor, Section
from lockstep.scenarios.units import Price, fail, shown


class Hierarchy(Section):
    """Relays between the workers and each server: one for each of `groups` groups of consecutive workers.

    At most `fan_out` relays hang below any other or the server: 1 makes a chain, no `fan_out` two levels.
    """

    groups: Count = Field(description="the number of groups of workers, such as 'groups: 4'")
    fan_out: Count | None = None


def _count_or_word(value: Any, number: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, str) and value not in _EACH:
        fail(f"must be a whole number, or {' or '.join(_EACH)}, not {shown(value)}")
    return value if value in _EACH else number(value)


_EACH: tuple[Any, ...] = ("hosts", "workers")
ServerCount = Annotated[
    int,
    Field(ge=1, le=100_000),
    WrapValidator(_count_or_word),  # of a preset: the scenario has the number of workers
    PlainSerializer(lambda count: count, return_type=int | str),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 100_000}, {"enum": [*_EACH]}]}),
]


class Servers(Section):
    """Parameter servers: `count` shards, on workers' hosts if `colocated`. A bare number is the count.

    `count: hosts` is one for each of the workers' hosts, `count: workers` one for each worker, however many
    there are; a scenario that has been read has the number.
    `shares`: the sizes of the shards relative to each other. `placement`: even shards, or whole variables on
    the servers in turn, but of those of more than `split_above` elements a part on each. `places`: the number
    of the rack, leaf or site in which each dedicated server (then each relay) stands; without it servers
    stand in each in turn, relays where the first worker that they serve is. `speed`: how many times as fast
    as a worker each server or relay updates and codes.
    `copies`: groups of `count` servers each, with all parameters in each group, for as many groups of
    consecutive workers. `price`: of each host that servers and relays have of their own; None: the cluster's.
    `device`: where servers and relays of a real run have and update their vectors; auto: on a GPU, where they
    see one. Those on workers' hosts then share the workers' GPUs, and their memory.
    """

    shorthand: ClassVar[str] = "count"
    count: ServerCount = 1
    copies: Count = 1
    colocated: bool = False
    shares: tuple[Factor, ...] | None = Field(None, strict=False)
    placement: Literal["even", "by-variable"] = "even"
    split_above: Count | None = None
    hierarchy: Hierarchy | None = None
    places: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(None, strict=False)
    speed: Factor = 1.0
    price: Price | None = None
    device: Literal["auto", "cpu", "cuda"] = "cpu"

    @property
    def even(self) -> bool:
        """Whether all servers hold as much of the parameters."""
        return self.shares is None and self.placement == "even"

    @property
    def processes(self) -> int:
        """How many servers and relays there are."""
        relays = self.hierarchy.groups if self.hierarchy else 0
        return self.count * (self.copies + relays)

    @property
    def hosts(self) -> int:
        """How many hosts of their own the servers and relays have."""
        return 0 if self.colocated else self.processes

    @model_validator(mode="after")
    def _one_for_each(self) -> Self:
        if self.copies > 1 and self.hierarchy is not None:
            fail(f"must be 1 with a hierarchy, not {self.copies}", "copies")
        if self.count in _EACH:
            return self
        if self.shares is not None and self.placement != "even":
            fail(f"must be even with shares, not {self.placement}", "placement")
        if self.split_above is not None and self.placement != "by-variable":
            fail("is for whole variables: give placement: by-variable, or remove it", "split_above")
        if self.shares is not None and len(self.shares) != self.count:
            fail(
                f"must have one number for each of the {self.count} servers, not {len(self.shares)}", "shares"
            )
        if self.places is not None and len(self.places) != self.hosts:
            fail(f"must have one number for each of {self.hosts} hosts, not {len(self.places)}", "places")
        return self


def counted(cluster: dict[str, Any]) -> dict[str, Any]:
    """With a number for `servers: {count: hosts}`; where that cannot be known something else is wrong."""
    servers = cluster.get("servers")
    servers = {"count": servers} if isinstance(servers, str) else servers
    workers, per_host = cluster.get("workers"), cluster.get("workers_per_host", 1)
    if not isinstance(servers, dict) or servers.get("count") not in _EACH:
        return cluster
    if type(workers) is not int or type(per_host) is not int or per_host < 1:
        return cluster
    count = workers if servers["count"] == "workers" else -(-workers // per_host)
    return cluster | {"servers": servers | {"count": count}}
