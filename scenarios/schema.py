"""The scenario: every section and key that a file may have, as frozen pydantic models.

Quantities are floats in base units (seconds, bytes, bytes/s, FLOP/s). Built by hand, a model raises
pydantic's ValidationError; `scenarios.load` turns that into a ScenarioError in the user's words.
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from lockstep.scenarios import faults as fault_kinds
from lockstep.scenarios import kinds, library, renamed
from lockstep.scenarios import profile as profiles
from lockstep.scenarios.compute import Compute
from lockstep.scenarios.faults import Fault, Recovery, Storage
from lockstep.scenarios.kinds import Kind
from lockstep.scenarios.library import OrNamed, Preset, needs
from lockstep.scenarios.machine import Machine
from lockstep.scenarios.parallelism import Parallelism
from lockstep.scenarios.problem import ScenarioError
from lockstep.scenarios.section import Count, Section, any_of, divisors, one_of
from lockstep.scenarios.servers import Servers, counted
from lockstep.scenarios.stragglers import Persistent, Straggler
from lockstep.scenarios.sweep import Sweep
from lockstep.scenarios.topology import Sites
from lockstep.scenarios.units import PositiveDuration, PositiveSize, Price, fail, shown
from lockstep.scenarios.workload import Sizes, Trained, Workload, valid_workload


def _compute(data: Any) -> type[Section] | None:
    if not isinstance(data, dict) and data != "measured":
        fail(f"must be {{time: …}}, {{peak: …}} or the word 'measured', not {shown(data)}")
    return Compute if isinstance(data, dict) else None


class Cluster(Machine):
    """The machines: `workers`, `servers`, the network between them, and what a gradient costs.

    Hosts hold `workers_per_host` consecutive workers; the hosts of dedicated servers are numbered after them.
    `device`: what the workers of a real run compute on; auto: a GPU, where they see one. `memory` is that of
    each worker's device: what does not fit is not run. `kinds`: workers that are not alike.
    `faults`: who fails, when, and for how long (docs/faults.md); `detect`: how long it takes to notice (2 s);
    `storage`: where checkpoints are. `price`: of a host (docs/cost.md).
    With a `preset`, a file or the name of a shipped one, what is not given here is as it says; with a
    `profile` (docs/calibrate.md) what is then still missing is as measured there. A scenario that has been
    read has taken both over, and no longer names them.
    """

    preset: Preset = None
    profile: str | None = Field(None, description="a file that 'lockstep calibrate' has written")
    workers: int = Field(ge=1, le=100_000, description="the number of workers, such as 'workers: 4'")
    workers_per_host: int = Field(1, ge=1, description="how many workers share a host, such as 4")
    servers: Servers = Servers()
    compute: Annotated[Compute | Literal["measured"], one_of(_compute)] = Field(
        description="the time of one gradient: {time: {distribution: …}}, {peak: …} or the word 'measured'"
    )
    device: Literal["auto", "cpu", "cuda"] = "auto"
    memory: PositiveSize | None = None
    price: Price | None = None
    kinds: tuple[Kind, ...] = Field((), strict=False)  # YAML has lists only
    stragglers: tuple[Straggler, ...] = Field((), strict=False)
    faults: tuple[Fault, ...] = Field((), strict=False)
    detect: PositiveDuration | None = None
    storage: Storage | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> Any:
        schema = super().__get_pydantic_json_schema__(core, handler)
        return needs(schema, ["preset"], ["workers", "compute"], ["workers", "profile"])

    @model_validator(mode="before")
    @classmethod
    def _those_who_join_are_workers(cls, data: Any) -> Any:
        return fault_kinds.with_those_added(data)

    @model_validator(mode="after")
    def _every_worker_has_a_kind(self) -> Self:
        kinds.check(self.kinds, self.workers, self.memory)
        return self

    def memory_of(self, worker: int) -> float | None:
        """Bytes of a worker's device; None: no limit."""
        kind = kinds.kind_of(self.kinds, worker)
        own = None if kind is None else self.kinds[kind].memory
        return self.memory if own is None else own

    def speed_of(self, worker: int) -> float:
        """How many times as fast as one of speed 1 a worker's device is, stragglers aside."""
        kind = kinds.kind_of(self.kinds, worker)
        return 1.0 if kind is None else self.kinds[kind].speed

    @model_validator(mode="after")
    def _messages_have_cores(self) -> Self:
        costs = self.network.processing
        if costs is not None and costs.cores is None and self.cores_per_host is None:
            needs = (
                "needs cores; give cluster.cores_per_host, or cores here for one machine that is all hosts"
            )
            fail(needs, "network", "processing")
        return self

    @model_validator(mode="after")
    def _groups_have_workers(self) -> Self:
        hierarchy = self.servers.hierarchy
        if hierarchy and hierarchy.groups > self.workers:
            where = ("servers", "hierarchy", "groups")
            fail(f"must be at most cluster.workers ({self.workers}), not {hierarchy.groups}", *where)
        return self

    @property
    def hosts(self) -> int:
        """The number of workers' hosts."""
        return -(-self.workers // self.workers_per_host)

    @property
    def server_groups(self) -> tuple[int, ...]:
        """The group (rack, leaf, site) of each host that servers and relays have of their own.

        Where `places` says, or servers in turn, and relays where the first worker that they serve is.
        """
        servers, groups = self.servers, self.network.topology.groups(self.hosts)
        if servers.places is not None or servers.colocated:
            return servers.places or ()
        places = [server % groups for server in range(servers.count * servers.copies)]
        relays = servers.hierarchy.groups if servers.hierarchy else 0
        for relay in range(relays):  # worker w is in group w·relays // workers
            places += [self.group_of(-(-relay * self.workers // relays))] * servers.count
        return tuple(places)

    def host_of(self, worker: int) -> int:
        """The host of a worker."""
        return worker // self.workers_per_host

    def group_of(self, worker: int) -> int:
        """The group (rack, leaf, site) of a worker's host; 0 in a star."""
        return self.network.topology.group_of(self.host_of(worker))

    def workers_by(self, scope: str) -> dict[int, list[int]]:
        """The workers of each "host" or "rack" that has any, by its number."""
        number_of = {"host": self.host_of, "rack": self.group_of}[scope]
        found: dict[int, list[int]] = {}
        for worker in range(self.workers):
            found.setdefault(number_of(worker), []).append(worker)
        return found

    @model_validator(mode="after")
    def _hosts_exist(self) -> Self:
        network, shape = self.network, self.network.topology
        if isinstance(shape, Sites) and sum(shape.hosts) != self.hosts:
            problem = f"must add up to the {self.hosts} workers' hosts, not to {sum(shape.hosts)}"
            fail(problem, "network", "topology", "hosts")
        for index, group in enumerate(self.servers.places or ()):
            if group >= (groups := shape.groups(self.hosts)):
                problem = f"must be a rack, leaf or site, from 0 to {groups - 1}, not {group}"
                fail(problem, "servers", "places", index)
        last = self.hosts + self.servers.hosts - 1
        named: list[tuple[int, tuple[str | int, ...]]] = []
        for index, card in enumerate(network.cards):
            named += [(host, ("cards", index, "hosts", place)) for place, host in enumerate(card.hosts)]
        cards = set()
        for host, at in named:
            if host in cards:
                fail(f"host {host} has two cards; keep one", "network", *at)
            cards.add(host)
        for index, flow in enumerate(network.background):
            named += [(flow.source, ("background", index, "from")), (flow.to, ("background", index, "to"))]
        for host, at in named:
            if host > last:
                fail(f"must be a host's number, from 0 to {last}, not {host}", "network", *at)
        return self

    @model_validator(mode="after")
    def _stragglers_exist(self) -> Self:
        listed = set()
        for index, straggler in enumerate(self.stragglers):
            if straggler.scope is None:
                continue
            scope, number = straggler.scope
            place = ("stragglers", index, scope)
            if scope == "worker" and number >= self.workers:
                fail(
                    f"must be less than cluster.workers ({self.workers}), not {number}; "
                    "name another worker, or say cluster.stragglers=[]",
                    *place,
                )
            if scope != "worker" and number not in (known := self.workers_by(scope)):
                fail(f"no worker is there; {scope}s with workers are {min(known)} to {max(known)}", *place)
            if isinstance(straggler, Persistent):
                if straggler.scope in listed:
                    fail(f"{scope} {number} is listed twice; keep one", *place)
                listed.add(straggler.scope)
        return self

    @model_validator(mode="after")
    def _faults_befall_somebody(self) -> Self:
        if not self.faults or isinstance(self.servers.count, str):  # of a preset: nobody knows yet
            return self
        there = {
            "worker": range(self.workers),
            "server": range(self.servers.count),
            "host": range(self.hosts + self.servers.hosts),
            "rack": range(self.network.topology.groups(self.hosts)),
        }
        for index, item in enumerate(self.faults):
            for scope, number, *path in fault_kinds.named(item):
                if number not in there[scope]:
                    last = len(there[scope]) - 1
                    problem = f"must be a {scope}'s number, from 0 to {last}, not {number}"
                    fail(problem, "faults", index, *path)
        fault_kinds.check_resizes(self.faults, self.workers)
        return self


class Strategy(Section):
    """A strategy by `name`; its other keys are `parameters`, which only the strategy can judge."""

    model_config = ConfigDict(extra="allow")
    shorthand: ClassVar[str] = "name"
    name: str = Field(min_length=1, description="the strategy's name, such as 'name: downpour'")

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, data: Any) -> Any:
        return renamed.strategy(data) if isinstance(data, dict) else data

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.__pydantic_extra__ or {})


class Target(Section):
    """How good the parameters are to become on held-out data, by one of a task's metrics, or `loss`."""

    metric: str = Field(min_length=1)
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            fail("needs at_least or at_most, one of them")
        return self

    @property
    def value(self) -> float:
        """The least, or the most, that will do."""
        return self.at_least if self.at_least is not None else self.at_most  # type: ignore[return-value]

    def reached(self, found: float | None) -> bool:
        """Whether it has become so good; not where there is no such metric."""
        if found is None:
            return False
        return found >= self.value if self.at_most is None else found <= self.value


class Stop(Section):
    """When a run ends: at the first bound reached.

    `steps`: mini-batches per worker; of all workers together, where the server chooses who works (fedavg).
    `updates`: updates applied by the server (rounds, without one).
    `epochs`: passes of all workers together over the data set. `time`: seconds of the engine's clock; what
    would happen at that very instant no longer does.
    `target_accuracy`: an accuracy in (0, 1]; `target`: such as {metric: loss, at_most: 0.3}. Either needs
    another bound, for a target that is never reached.
    """

    steps: Count | None = None
    updates: Count | None = None
    epochs: Count | None = None
    time: PositiveDuration | None = None
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    target: Target | None = None

    @property
    def goal(self) -> Target | None:
        """How good parameters end the run; None: however good they are, it goes on."""
        if self.target_accuracy is None:
            return self.target
        return Target(metric="accuracy", at_least=self.target_accuracy)

    @property
    def by_time_alone(self) -> bool:
        """Whether nothing but the clock ends a run."""
        return (self.steps, self.updates, self.epochs, self.goal) == (None,) * 4

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.target is not None and self.target_accuracy is not None:
            fail("there is a target_accuracy too; give one of them", "target")
        if (self.steps, self.updates, self.epochs, self.time) == (None,) * 4:
            if self.goal:
                key = "target" if self.target else "target_accuracy"
                fail("may never be reached; give steps, updates, epochs or time too", key)
            fail("nothing ends the run; give steps, updates, epochs or time")
        return self


def _valid_cluster(document: Any, context: dict[str, Any]) -> Section:
    return Cluster.model_validate(document, context=context)


def _over_profile(cluster: dict[str, Any], workload: Any, context: dict[str, Any]) -> dict[str, Any]:
    key = "profile"
    try:
        found = profiles.read(library.find(cluster[key], "profiles", Path(context.get("folder", "."))))
        key = "compute"
        complete = valid_workload(workload, context).model_dump(exclude_none=True)
        return profiles.beneath(found, cluster, complete)
    except ScenarioError as error:
        fail(str(error), "cluster", key)
    except ValidationError:  # of the workload, which the check of the whole will tell
        return {"compute": "measured", **cluster}


_WHOLE = Parallelism()  # a model that is not split


class Scenario(Section):
    """One experiment: a cluster, a workload, a strategy, when to stop, and what to vary.

    `sweep` maps dotted keys to lists of values (docs/sweep.md). `seed` fixes every draw.
    """

    name: str = Field(min_length=1, description="a name, such as 'name: quickstart'")
    cluster: Annotated[Cluster, OrNamed()] = Field(
        description="the machines, such as {workers: 4, compute: …}"
    )
    workload: Annotated[Workload, OrNamed()] = Field(description="what is learned, such as {dataset: digits}")
    parallelism: Parallelism | None = Field(None, description="how a replica's devices share the model")
    strategy: Strategy = Field(description="how workers cooperate, such as 'strategy: downpour'")
    stop: Stop = Field(description="when to end, such as 'stop: {steps: 100}'")
    recovery: Recovery | None = None
    seed: int = Field(0, ge=0)
    sweep: Sweep = Field({})

    @model_validator(mode="before")
    @classmethod
    def _take_over(cls, data: Any, info: ValidationInfo) -> Any:
        """Fill in what presets and a profile say."""
        if not isinstance(data, dict):
            return data
        context = info.context or {}
        for key, valid in (("cluster", _valid_cluster), ("workload", valid_workload)):
            try:
                section = library.over(data.get(key), f"{key}s", valid, context)
            except ScenarioError as error:
                fail(str(error), key, *(["preset"] if isinstance(data[key], dict) else []))
            data = data | {key: section} if key in data else data
        cluster = data.get("cluster")
        if not isinstance(cluster, dict):
            return data
        if cluster.get("profile") is not None:
            cluster = _over_profile(cluster, data.get("workload"), context)
        return data | {"cluster": counted(cluster)}

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        work, stop, compute = self.workload, self.stop, self.cluster.compute
        if stop.epochs and not work.has_epochs:
            fail("only a data set has epochs; give workload.dataset, or stop.steps instead", "stop", "epochs")
        if stop.target_accuracy and not (isinstance(work, Trained) and work.learns):
            needs = "needs a data set that is learned; give workload.dataset, and no 'learning: false'"
            fail(needs, "stop", "target_accuracy")
        if stop.target and not work.learns:
            fail("needs something that is learned; this workload has sizes only", "stop", "target")
        if isinstance(compute, Compute) and compute.peak and isinstance(work, Sizes) and not work.flops:
            needs = "needs the work per sample; give workload.flops, such as 4.1e9, or compute.time instead"
            fail(needs, "cluster", "compute", "peak")
        return self

    @model_validator(mode="after")
    def _replicas_are_whole(self) -> Self:
        split, workers = self.split, self.cluster.workers
        if workers % split.devices:
            valid = any_of(divisors(workers), split.devices)
            said, both = (
                f"must divide cluster.workers ({workers}): {valid}; not",
                split.pipeline > 1 < split.tensor,
            )
            if both:
                fail(f"pipeline × tensor {said} {split.pipeline} × {split.tensor}", "parallelism", "tensor")
            fail(f"{said} {split.devices}", "parallelism", "pipeline" if split.tensor == 1 else "tensor")
        return self

    @property
    def split(self) -> Parallelism:
        """How the model is split; not at all, if the file does not say."""
        return self.parallelism or _WHOLE

    @property
    def on_failure(self) -> str:
        """What the job does when a process fails."""
        return self.recovery.on_failure if self.recovery else "stop"

    @property
    def goes_on(self) -> bool:
        """Whether processes fail and come back while the others go on."""
        return self.with_faults and self.on_failure in ("continue", "wait")

    @property
    def with_faults(self) -> bool:
        """Whether processes fail, or checkpoints are written: metrics then say what that costs."""
        return bool(self.cluster.faults) or (
            self.recovery is not None and self.recovery.checkpoint is not None
        )

    @property
    def replicas(self) -> int:
        """Replicas of the model: as many as workers, unless it is split over several."""
        return self.cluster.workers // self.split.devices

    @property
    def sizes_only(self) -> Self:
        """The same with nothing learned: equal in all but losses, and quicker to simulate."""
        if not self.workload.learns:
            return self
        workload = self.workload.model_copy(update={"learning": False})
        return self.model_copy(update={"workload": workload})
