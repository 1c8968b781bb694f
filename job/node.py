"""A node of a running job, on any engine: what every operation of the strategy language means.

Identity, counters and records are here, the rest of its state is in its parts (mailbox, busy, passes); time,
messages and the device are the port's (job/port.py).
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from math import inf, nan
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep.analysis.records import Recorder
from lockstep.job.arithmetic import Arithmetic
from lockstep.job.busy import Busy
from lockstep.job.ending import Ending
from lockstep.job.events import Event, Later, Retired
from lockstep.job.incarnation import FIRST, Incarnation, Keep, Saved, State, keeps_nothing, nbytes_of
from lockstep.job.joining import ALWAYS
from lockstep.job.mailbox import Mailbox
from lockstep.job.member import Member, first_part, part_of
from lockstep.job.passes import Once, Passes
from lockstep.job.plan import Plan
from lockstep.job.port import Arrival, Port, Work
from lockstep.job.snapshots import Snapshots
from lockstep.strategies.codecs import Codec
from lockstep.strategies.node import Collective, Contribution, Group, Message, Source, Vector

if TYPE_CHECKING:
    from lockstep.job.recovery import Notices

T = TypeVar("T")


class Node:
    """See `strategies.Node` for what each member means."""

    __slots__ = (
        *("rank", "index", "shard", "role", "workers", "parents", "children", "followers", "shards"),
        *("hosts", "_rng", "_seed"),
        *("step", "epoch", "budget", "loss", "memory", "stage", "micro_batches", "passes"),
        *("concatenate", "to_send", "add", "add_parts", "vector"),
        *("port", "clock", "recorder", "ending", "snapshots", "arithmetic", "owner"),
        *("program_ended", "collectives", "computing", "mailbox", "interrupt", "busy", "met", "saved"),
        *("keep", "forget", "noted", "_every", "_write_s", "touching", "matrices"),
        *("_notices", "_leaves_at", "rejoins", "goes_on", "receive", "receive_among", "arrived"),
    )

    def __init__(
        self,
        plan: Plan,
        rank: int,
        port: Port,
        recorder: Recorder,
        ending: Ending,
        arithmetic: Arithmetic,
        snapshots: Snapshots | None,
        epoch: int,
        incarnation: Incarnation = FIRST,
    ) -> None:
        number, place = plan.places[rank]
        group = plan.groups[number]
        self.role = role = group.roles[place]
        self.rank, self.index, self.shard = rank, role.index, role.shard
        self.workers: Sequence[int] = group.workers
        self.parents: Sequence[int] = role.parents
        self.children: Sequence[int] = role.children
        self.followers: Sequence[int] = role.followers
        self.shards, self.hosts = group.shards, plan.worker_hosts[number]
        life = "".join(f"/{key}" for key in incarnation.key())
        self._seed = f"{plan.scenario.seed}/node/{place}{life}"  # the same choices in each slice
        self._rng: Random | None = None
        self.step, self.epoch = incarnation.steps.get(rank, 0), epoch
        self.budget = None if plan.budget is None else plan.budget - sum(incarnation.steps.values())
        self.saved: Saved | None = incarnation.saved.get(rank)
        self.rejoins = incarnation.rejoins and plan.has_joined(rank, incarnation.start)
        self.goes_on = plan.goes_on
        self.keep: Keep = keeps_nothing  # what it saves
        self.forget: Callable[[int], None] = lambda version: None  # what anybody has saved beyond
        # of a gradient in passes, or that is given up: its mini-batch, when it was begun, and when it ended;
        # nan: it is under way
        self.noted: Callable[[int, float, float], None] = lambda step, start, end: None
        self._every, self._write_s = plan.checkpoints(rank)
        self._notices = None if self._every is None else self._noticing(plan, incarnation.start)
        self.loss = nan
        self.memory: Any = None
        self.port, self.clock = port, port.clock
        self.recorder, self.ending, self.snapshots = recorder, ending, snapshots
        known = plan.owners.shown_by_all and snapshots is not None and snapshots.last is not None
        if snapshots is not None and not known and self.saved is not None and self.saved.shown is not None:
            snapshots.last = self.saved.version, incarnation.start, self.saved.shown
        self.arithmetic = arithmetic
        self.vector = arithmetic.vector
        self.concatenate, self.to_send = arithmetic.concatenate, arithmetic.to_send
        self.add, self.add_parts = arithmetic.add, arithmetic.add_parts
        self.stage: Any = plan.stages.get(rank)
        self.micro_batches = plan.micro_batches
        self.passes = Passes(plan, rank) if self.stage is not None else None
        self.touching, self.matrices = plan.touching, plan.matrices
        self.owner = plan.owners.owner(rank)  # in the records: of the parameters it updates
        self.program_ended = False
        self.collectives = 0
        self.met: dict[Group, int] = {}  # collectives in which it was a member of a group
        self.computing: dict[int, float] = {}  # whose end is not known: when the gradient of a step was begun
        self.mailbox = mailbox = Mailbox()
        self.receive, self.arrived = mailbox.receive, mailbox.arrived  # without a call between
        self.receive_among = mailbox.receive_among
        for worker, (since, until) in plan.presence.items():
            if plan.has_servers:
                absent = since > incarnation.start and worker in role.children
            else:
                absent = not since <= incarnation.start < until and worker != rank
            if absent:  # it is still to join, or has left
                mailbox.put(Message("leave", worker))
        self._leaves_at = plan.presence.get(rank, ALWAYS)[1]
        self.interrupt: tuple[str, Event] | None = None  # what ends a gradient that is under way
        is_worker = role.kind == "worker"
        self.busy = Busy(is_worker, at_once=not is_worker and arithmetic.finish is None)

    def _noticing(self, plan: Plan, since: float) -> "Notices | None":
        from lockstep.job.recovery import Notices  # with all that goes wrong, which most runs do without

        return Notices.of(plan, since)

    def end(self) -> None:
        """Its program has come to its end; it only answers from now on."""
        self.program_ended = True

    @property
    def rng(self) -> Random:
        """Made when it is needed, which it seldom is: it takes 3 kB."""
        if self._rng is None:
            self._rng = Random(self._seed)
        return self._rng

    @property
    def rows(self) -> Sequence[slice]:
        assert self.touching is not None, "the job does not ask for rows"
        return self.touching.rows

    def touched(self, step: int) -> Sequence[int]:
        assert self.touching is not None, "the job does not ask for rows"
        return self.touching(self.index, step)

    @property
    def now(self) -> float:
        return self.port.tell_time()

    def initial_parameters(self) -> Vector:
        initial: Vector = self.arithmetic.initial
        return initial

    # ---------------------------------------------------------------- messages

    def send(
        self,
        to: int,
        kind: str,
        body: Vector | None = None,
        *,
        version: int = 0,
        batches: int = 0,
        part: int = 0,
        weight: float = 1.0,
        sources: tuple[Source, ...] = (),
    ) -> Awaitable[None]:
        return self.port.post(to, Message(kind, self.rank, body, version, batches, part, weight, sources))

    def take_in(self, arrival: Arrival) -> None:
        """Take in a message that has arrived."""
        message = arrival.message
        kind = message.kind
        self.recorder.message(
            message.sender, self.rank, arrival.start, arrival.left_at, self.clock.now, kind, arrival.nbytes
        )
        if not self.mailbox.hand_over_or_keep(message):
            return
        if self.interrupt is not None and self.interrupt[0] == kind:
            self._stop_computing(False)
        self.mailbox.break_off(message)

    # ---------------------------------------------------------------- gradients

    @property
    def leaves(self) -> bool:
        return self._leaves_at < inf and self.now >= self._leaves_at

    async def next_batch_available(self) -> bool:
        if self.leaves:
            return False
        return self.ending.available(self.rank, self.step)

    async def gradient(self, parameters: Vector) -> Vector:
        if self.passes is not None:
            return await self.passes.gradient(self, parameters, self.begin())
        work = self._compute(parameters)
        await work.done
        gradient, self.loss = work.gradient()
        return gradient

    def begin_gradient(self, parameters: Vector) -> Awaitable[Vector]:
        step = self.begin()

        async def gradient() -> Vector:
            if self.passes is not None:
                return await self.passes.gradient(self, parameters, step)
            work = self._compute(parameters, step=step)
            await work.done
            found, self.loss = work.gradient()
            return found

        return self.beside(gradient)

    async def gradient_unless(self, parameters: Vector, kind: str) -> Vector | None:
        if self.arrived(kind):
            return None
        if self.passes is not None:
            gradient = await self.passes.gradient(self, parameters, self.begin())
            return None if self.arrived(kind) else gradient
        step = self.begin()
        work = self.port.compute(parameters, step)
        self.computing[step] = work.start
        self.interrupt = (kind, stopped := Event())
        work.done.then(lambda _: self._stop_computing(True) if self.interrupt == (kind, stopped) else None)
        finished = await stopped
        start, end = self.computing.pop(step), self.clock.now
        if not finished:
            self.noted(step, start, end)  # first: what is recorded and not noted would be there twice
        self.recorder.gradient(self.rank, start, end, step)
        if not finished:
            work.give_up()
            return None
        gradient, self.loss = work.gradient()
        return gradient

    def _stop_computing(self, finished: bool) -> None:
        assert self.interrupt is not None
        (_, stopped), self.interrupt = self.interrupt, None
        self.port.wait(0.0).then(lambda _: stopped.happen(finished))

    def backward(self, parameters: Vector, parts: Sequence[slice]) -> Sequence[Awaitable[Vector]]:
        if self.passes is not None:
            passes, step = self.passes, self.begin()
            whole = Once(lambda: passes.gradient(self, parameters, step))
            return [whole.part(part) for part in parts]
        work = self._compute(parameters, [part.start for part in parts])
        computed: list[Vector] = []

        def take(part: slice) -> Vector:
            if not computed:
                gradient, self.loss = work.gradient()
                computed.append(gradient)
            return computed[0][part]

        return [Later(event, partial(take, part)) for event, part in zip(work.parts, parts, strict=True)]

    def begin(self) -> int:
        """Take a mini-batch: its number."""
        step = self.step
        self.step = step + 1
        return step

    # ---------------------------------------------------------------- passes of a gradient

    def forward(
        self, parameters: Vector, micro: int, inputs: Vector | None, chunk: int = 0, segment: int = 0
    ) -> Awaitable[Vector]:
        assert self.passes is not None
        return self.passes.forward(self, parameters, micro, inputs, chunk, segment)

    def recompute(
        self, micro: int, inputs: Vector | None, chunk: int = 0, segment: int = 0
    ) -> Awaitable[Vector]:
        assert self.passes is not None
        return self.passes.do(self, "recompute", micro, chunk, inputs, segment)

    def full_backward(
        self, micro: int, error: Vector | None, chunk: int = 0, segment: int = 0
    ) -> Awaitable[tuple[Vector | None, Vector]]:
        assert self.passes is not None
        return self.passes.full_backward(self, micro, error, chunk, segment)

    def backward_inputs(
        self, micro: int, error: Vector | None, chunk: int = 0, segment: int = 0
    ) -> Awaitable[Vector | None]:
        assert self.passes is not None
        return self.passes.do(self, "backward-inputs", micro, chunk, error, segment)

    def backward_weights(self, micro: int, chunk: int = 0) -> Awaitable[Vector]:
        assert self.passes is not None
        return self.passes.backward_weights(self, micro, chunk)

    @property
    def under_way(self) -> dict[int, float]:
        """The gradients that are: of which mini-batch each is, and when it was begun."""
        return self.computing if self.passes is None else self.passes.under_way

    def _compute(self, parameters: Vector, down_to: Sequence[int] = (), step: int | None = None) -> Work:
        """Take a mini-batch, and record its gradient: at once, if it is known how long it takes."""
        if step is None:
            step = self.step
            self.step = step + 1  # as `begin`, without a call
        work = self.port.compute(parameters, step, down_to)
        if work.end is not None:
            self.recorder.gradient(self.rank, work.start, work.end, step)
        else:
            self.computing[step] = work.start
            work.done.then(partial(self._computed, step))
        return work

    def _computed(self, step: int, done: Event) -> None:
        """Record a gradient whose end is known now: it may be the value with which it happened."""
        end = self.clock.now if done.value is None else done.value
        start = self.computing.pop(step, None)
        if start is not None:  # else the node has failed meanwhile
            self.recorder.gradient(self.rank, start, end, step)

    # ---------------------------------------------------------------- work on vectors

    def encode(self, vector: Vector, codec: Codec) -> Awaitable[Vector]:
        seed, encode = codec.seed(self.rng), self.arithmetic.encode
        cost = self.port.cost(vector.nbytes, codec.name)
        return self.busy.do(self, lambda: encode(vector, codec, seed), cost, "encode")

    def decode(self, body: Vector, codec: Codec, length: int) -> Awaitable[Vector]:
        decode, itemsize = self.arithmetic.decode, self.arithmetic.itemsize
        cost = self.port.cost(length * itemsize, codec.name, decoding=True)
        return self.busy.do(self, lambda: decode(body, codec, length), cost, "decode")

    def apply(self, function: Callable[[], T], nbytes: int) -> Awaitable[T]:
        return self.busy.do(self, function, self.port.cost(nbytes), "apply")

    # ---------------------------------------------------------------- updates

    async def updated(self, version: int, parameters: Vector, contributions: Sequence[Contribution]) -> bool:
        owner = self.owner
        now = self.clock.now if self.memory is None else self.memory.completed_at(version)
        for part in contributions:
            self.recorder.update(owner, part.worker, now, version - 1, part.staleness, part.batches)
        if self.snapshots is not None:
            kept: Any = parameters
            if self.memory is not None:  # itself, not what a worker has read
                kept = self.memory.now() if self.snapshots.wants(version) else None
            if self.snapshots.offer(version, now, kept):
                self.port.show(version, kept)
        if self.ending.updated(owner, version, self.program_ended):
            raise Retired
        noticed = self._notices is not None and self._notices.due(self.now)
        return noticed or (self._every is not None and version % self._every == 0)

    async def save(self, version: int, state: State, step: int | None = None) -> None:
        start, nbytes = self.clock.now, nbytes_of(state)
        shown = self.snapshots and self.snapshots.at(version)
        kept = self.keep(Saved(version, self.step if step is None else step, state, shown))
        end = start + nbytes * self._write_s
        await self.port.wait(max(0.0, end - self.clock.now))
        kept()
        self.recorder.note("checkpoint", self.rank, start, self.clock.now, version, nbytes, kind="write")

    def dropped(self, push: Message) -> None:
        for source in push.pushed_by:
            self.recorder.drop(self.rank, source.worker, self.clock.now, source.version, source.batches)

    # ---------------------------------------------------------------- collectives, and the rest

    def collective(
        self, program: Collective, vector: Vector, among: Group | None = None
    ) -> Awaitable[Vector]:
        if among is not None:
            self.mailbox.look_for_news(among)
            return self._member(among, begun=False).collective(program, vector)
        short = self.port.collective(program, vector)
        return program(self, vector) if short is None else short

    def begin_collective(
        self, program: Collective, vector: Vector, among: Group | None = None
    ) -> Awaitable[Vector]:
        done, member = Event(), self._member(among or self._all, begun=True)

        async def run() -> None:
            done.happen(await member.collective(program, vector))

        self.spawn(run())
        return done

    @property
    def _all(self) -> Group:
        return Group(tuple(self.workers), tuple(self.hosts))

    def enter(self, group: Group, version: int, adding: Sequence[int]) -> None:
        self.mailbox.forget_parts(first_part(group))
        if self.snapshots is not None:
            self.snapshots.forget(version)
        self.forget(version)
        who = " ".join(map(str, adding))
        self.recorder.note("group", self.rank, self.clock.now, version, group.number, kind=who)

    def go_on_with(self, step: int) -> None:
        self.step = step

    def _member(self, group: Group, begun: bool) -> Member:
        number = self.met.get(group, 0)
        self.met[group] = number + 1
        return Member(self, group, part_of(group, number), begun, group if group.breaks else None)

    async def all_reduce(self, vector: Vector) -> Vector:
        start, number = self.clock.now, self.collectives
        self.collectives += 1
        total, nbytes = await self.port.all_reduce(vector)
        self.recorder.collective(self.rank, start, self.clock.now, number, nbytes)
        return total

    def spawn(self, program: Coroutine[Any, Any, None]) -> None:
        self.port.start(program)

    def beside(self, program: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        done = Event()

        async def run() -> None:  # who fails before it has begun has made no other coroutine
            done.happen(await program())

        self.spawn(run())
        return done

    def sleep(self, seconds: float) -> Awaitable[None]:
        return self.port.wait(seconds)
