"""A node in real time: the executor's side of the strategy language. Its methods block."""

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from math import nan
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from lockstep.analysis.records import Recorder
from lockstep.executor.activities import Activities
from lockstep.executor.backward import Beside, Later
from lockstep.executor.devices import to_device
from lockstep.executor.mailbox import Mailbox, Received
from lockstep.executor.running import Done, Stopped, run_to_end
from lockstep.executor.settling import settle
from lockstep.executor.transport import Transport
from lockstep.job.arithmetic import OnTensors
from lockstep.job.plan import Plan
from lockstep.job.snapshots import Snapshots
from lockstep.strategies import Collective, Contribution, Message, Source, Vector
from lockstep.strategies.codecs import Codec
from lockstep.strategies.parameter_server import shard_of
from lockstep.workloads import Learner, codecs
from lockstep.workloads.compute_time import ComputeTime
from lockstep.workloads.slowness import slowness

if TYPE_CHECKING:
    from lockstep.executor.memory import WorkerMemory

T = TypeVar("T")
_SLICE_S = 0.05  # how often a node that waits looks whether the run is over
_POLL_S = 0.002  # messages are waited for in whole milliseconds
_SETTLE_S = 0.01  # how often a worker whose program has ended looks whether the others' have
_BYE = "bye"  # a child will send no more


class RealNode:
    """See `strategies.Node` for what each member means."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        initial: torch.Tensor,
        transport: Transport,
        compute: ComputeTime | None,
        learner: Learner | None,
        snapshots: Snapshots | None,
    ) -> None:
        self.plan, self.scenario, scenario = plan, plan.scenario, plan.scenario
        self.rank = rank
        self.role = plan.roles[rank]
        self.index, self.shard = self.role.index, self.role.shard
        self.workers: Sequence[int] = plan.workers
        self.parents: Sequence[int] = self.role.parents
        self.children: Sequence[int] = self.role.children
        self.shards = plan.shards
        self.holder = plan.owners.owner(rank)  # in the records: of the parameters it updates
        self.hosts: Sequence[int] = plan.hosts[: len(plan.workers)]
        self.rng = Random(f"{scenario.seed}/node/{rank}")
        self.step = 0
        self.epoch = learner.epoch(rank) if learner and rank in plan.workers else plan.epoch(rank)
        self.loss = nan
        self.memory: WorkerMemory | None = None
        self.initial = initial
        arithmetic = OnTensors(initial)
        self.concatenate, self.add_parts = arithmetic.concatenate, arithmetic.add_parts
        self.transport = transport
        self.store = transport.store
        self.compute = compute
        self.slowness = slowness(scenario).get(rank)
        self.backward_share = getattr(scenario.cluster.compute, "backward", 0.0)
        self.learner = learner
        self.budget = plan.budget
        self.snapshots = snapshots
        self.recorder = Recorder()
        self.zero = time.monotonic()
        self.reserved = False
        self.collectives = 0
        self.overruns: list[float] = []  # real ÷ drawn duration of gradients that took too long
        self.mailbox = Mailbox(self._fetch)
        self.byes = 0
        self.activities = Activities(run_to_end)
        self._fetched: dict[tuple[str, int], int] = {}  # messages of a kind from a sender
        self._beside = Beside(initial.device)
        self._looked = 0.0
        self._leaving = ""  # how workers leave the run, once that is settled
        self._over = False  # whether the end of the run has been seen
        self.program_ended = self._closing = self.in_collective = False
        self.done_share = self.longest_s = 0.0  # of the run; the longest piece of work
        self.join_workers: Callable[[], None] = lambda: None  # all, for native collectives
        self.leave: Callable[[str, bytes], None] = lambda name, content: (
            None
        )  # a file, where the run is watched

    @property
    def now(self) -> float:
        return time.monotonic() - self.zero

    def initial_parameters(self) -> Vector:
        return self.initial

    def vector(self, values: Sequence[float]) -> Vector:
        return self.initial.new_tensor(values)  # type: ignore[no-any-return]

    def encode(self, vector: Vector, codec: Codec) -> Awaitable[Vector]:
        seed = codec.seed(self.rng)
        return self.apply(lambda: codecs.encode(vector, codec, seed), 0, "encode")  # type: ignore[arg-type,return-value]

    def decode(self, body: Vector, codec: Codec, length: int) -> Awaitable[Vector]:
        dtype = self.initial.dtype
        return self.apply(lambda: codecs.decode(body, codec, length, dtype), 0, "decode")  # type: ignore[arg-type,return-value]

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
        header = (kind, self.rank, version, batches, part, float(weight), sources, self.now)
        return self.transport.send(to, header, body)  # type: ignore[arg-type]

    def receive(self, kind: str | None = None, sender: int | None = None) -> Awaitable[Message]:
        def look() -> None:
            self._look_for_the_end()
            if self.children and self.byes == len(self.children) and sender not in self.parents:
                raise Stopped  # only a parent could still send something

        return Done(self.mailbox.receive(kind, sender, look, _SLICE_S))

    def _fetch(self, timeout_s: float) -> Message | bool | None:
        """The next message that has arrived; False for a farewell, None for nothing."""
        found = self.transport.receive(timeout_s)
        if found is None:
            return None
        (kind, sender, version, batches, part, weight, sources, start), body = found
        if kind == _BYE:
            self.byes += 1
            return False
        nbytes = 0 if body is None else body.nbytes
        self.recorder.message(sender, self.rank, start, nan, self.now, kind, nbytes)
        if body is not None:
            body = to_device(body, self.initial.device)
        pushed_by = tuple(Source(*source) for source in sources)
        number = self._fetched[kind, sender] = self._fetched.get((kind, sender), 0) + 1
        return Received(kind, sender, body, version, batches, part, weight, pushed_by, number)

    def arrived(self, kind: str | None = None) -> bool:
        return self.mailbox.arrived(kind)

    def finish(self) -> None:
        """See the second activities to their end; tell those above that this node will send no more."""
        self.program_ended = True
        if self.role.kind == "worker" and not self.parents:
            settle(self)
        self._closing = True
        self.activities.join()
        self._beside.end()
        self._raise_failure()
        if self.memory is not None:
            self.memory.leave()
        for parent in self.parents:
            self.transport.send(parent, (_BYE, self.rank, 0, 0, 0, 1.0, (), 0.0), None)

    def next_batch_available(self) -> Awaitable[bool]:
        self._look_for_the_end()
        each, together = self.plan.quota.each, self.plan.quota.together
        if each is not None:
            self._tell_progress(self.step / each)
            if self.step >= each:
                return Done(False)
        if together is not None and not self.reserved:
            taken = self.store.add("batches", 1)
            self._tell_progress(taken / together)
            self.reserved = taken <= together
            return Done(self.reserved)
        return Done(True)

    def _tell_progress(self, fraction: float) -> None:
        self.done_share = fraction

    def gradient(self, parameters: Vector) -> Awaitable[Vector]:
        step, start, gradient, duration = self._compute(parameters)
        self._wait_until(start + duration)
        self.recorder.gradient(self.rank, start, self.now, step)
        self._note_loss()
        return Done(gradient)

    def gradient_unless(self, parameters: Vector, kind: str) -> Awaitable[Vector | None]:
        if self.arrived(kind):
            return Done(None)
        step, start, gradient, duration = self._compute(parameters)
        given_up = self.arrived(kind)
        while not given_up and start + duration - self.now > _POLL_S:
            self._look_for_the_end()
            left_s = start + duration - self.now - _POLL_S
            given_up = self.mailbox.arrived(kind, min(_SLICE_S, max(0.0, left_s)))
        if not given_up:
            self._wait_until(start + duration)
            self._note_loss()
        self.recorder.gradient(self.rank, start, self.now, step)
        return Done(None if given_up else gradient)

    def backward(self, parameters: Vector, parts: Sequence[slice]) -> Sequence[Awaitable[Vector]]:
        if self.learner is not None and self.compute is None and self.slowness is None:
            start, step = self._begin()
            return self._beside.backward(
                lambda ready: self.learner.gradient(parameters, self.index, step, ready),  # type: ignore
                parts,
                lambda: self._computed(start, step),
                self._note_loss,
            )
        step, start, gradient, duration = self._compute(parameters)
        self.recorder.gradient(self.rank, start, max(self.now, start + duration), step)
        done = [start + duration * (1 - self.backward_share * p.start / len(parameters)) for p in parts]
        return [Later(self, end, gradient[part]) for end, part in zip(done, parts, strict=True)]

    def _begin(self) -> tuple[float, int]:
        """Take a mini-batch: the instant, and its number."""
        start, step = self.now, self.step
        self.step += 1
        self.reserved = False
        return start, step

    def _compute(self, parameters: Vector) -> tuple[int, float, Any, float]:
        """Take a mini-batch: its number, when its gradient was begun, what that is, and how long it takes."""
        start, step = self._begin()
        gradient: Any = self.initial
        if self.learner is not None:
            gradient = self.learner.gradient(parameters, self.index, step)  # type: ignore[arg-type]
            if gradient.is_cuda:
                torch.cuda.synchronize(gradient.device)
        real = self.now - start
        if self.compute is None:  # measured times: a straggler waits until it would be done
            duration = self.slowness.seconds(start, real) if self.slowness else real
            self.longest_s = max(self.longest_s, duration)
            return step, start, gradient, duration
        duration = self.compute.draw(start)
        self.longest_s = max(self.longest_s, duration, real)
        if real > duration:
            self.overruns.append(real / duration if duration else float("inf"))
        return step, start, gradient, duration

    def _computed(self, start: float, step: int) -> None:
        """A gradient has been, in a thread of its own."""
        self.recorder.gradient(self.rank, start, self.now, step)
        self.longest_s = max(self.longest_s, self.now - start)

    def _note_loss(self) -> None:
        """The gradient that was computed last is there."""
        if self.learner is not None:
            self.loss = self.learner.loss

    def _wait_until(self, instant: float) -> None:
        left_s = instant - self.now
        if left_s > 0:  # even a sleep of 0 s takes 70 us
            time.sleep(left_s)

    def apply(self, function: Callable[[], T], nbytes: int, kind: str = "apply") -> Awaitable[T]:
        start = self.now
        value = function()  # activities take turns (interleaving.py)
        if self.role.kind == "worker":
            self.recorder.work(self.rank, start, self.now, kind)
        return Done(value)

    def dropped(self, push: Message) -> None:
        for source in push.pushed_by:
            self.recorder.drop(self.rank, source.worker, self.now, source.version, source.batches)

    def collective(self, program: Collective, vector: Vector) -> Awaitable[Vector]:
        return program(self, vector)

    def all_reduce(self, vector: Vector) -> Awaitable[Vector]:
        p = len(self.workers)
        if p > 1 and not self._claim("together"):
            raise Stopped
        start = self.now
        # One more value: how many workers have seen the end of the run. None may leave before all know.
        ending = vector.new_tensor([float(self._is_over())])  # type: ignore[attr-defined]
        total = torch.cat([vector, ending])  # type: ignore[list-item]
        if p > 1:
            self.in_collective = True
            if not dist.is_initialized():
                self.join_workers()
            dist.all_reduce(total)
            self.in_collective = False
        over = bool(total[-1])  # on a GPU this waits for the sum
        # As in a ring: every chunk but one to be summed, and every one but one that is.
        kept = [shard_of(vector, (self.index + step) % p, p).nbytes for step in (1, 2)]
        self.recorder.collective(self.rank, start, self.now, self.collectives, 2 * vector.nbytes - sum(kept))
        self.collectives += 1
        if over:
            raise Stopped
        return Done(total[:-1])

    def updated(
        self, version: int, parameters: Vector, contributions: Sequence[Contribution]
    ) -> Awaitable[None]:
        now = self.now
        if self.memory is not None:
            now, parameters = self.memory.updated(version)
        for part in contributions:
            self.recorder.update(self.holder, part.worker, now, version - 1, part.staleness, part.batches)
        if self.learner is not None and self.snapshots is not None:
            kept = self.snapshots.offer(version, now, parameters)
            if kept and self.scenario.stop.target_accuracy is not None:
                part_bytes = parameters.cpu().numpy().tobytes()  # type: ignore[attr-defined]
                place = self.index if self.memory is None else 0
                self.leave(f"snapshot-{place}-{version}", part_bytes)
                self.store.set(f"snapshot/{place}", str(version))
        if self.scenario.stop.updates is not None:
            self._tell_progress(version / self.scenario.stop.updates)
        if version == self.scenario.stop.updates and not self.program_ended:
            everyone = self.store.add("holders that are done", 1) == len(self.plan.owners.ranks)
            if everyone:
                self.store.set("stop", "1")
            if everyone or not self.plan.relayed:  # else other shards may need more: relays sum as they come
                raise Stopped
        return Done(None)

    def _look_for_the_end(self) -> None:
        """Raise Stopped at the end of the run, unless others may wait for this worker in a collective."""
        self._raise_failure()
        if self._closing:
            raise Stopped
        if self._is_over() and (self.children or self._claim("alone")):
            raise Stopped

    def _is_over(self) -> bool:
        """Whether the run's time is up, or somebody has said in the store that it is over."""
        stop, now = self.scenario.stop, self.now
        if stop.time is not None:
            self._tell_progress(now / stop.time)
            self._over = self._over or now >= stop.time
        said_elsewhere = stop.updates is not None or stop.target_accuracy is not None
        if said_elsewhere and not self._over and now - self._looked >= _SLICE_S:
            self._looked = now
            self._over = bool(self.store.check(["stop"]))
        return self._over

    def _claim(self, how: str) -> bool:
        """Whether workers leave the run `how`: "alone", or "together" because they meet in collectives.

        It is settled by the first who asks.
        """
        if not self._leaving:
            self._leaving = self.store.compare_set("leaving", "", how).decode()
        return self._leaving == how

    def spawn(self, program: Coroutine[Any, Any, None]) -> None:
        self.activities.start(program)

    def _raise_failure(self) -> None:
        """Raise what ended a second activity."""
        if self.activities.failure is not None:
            raise self.activities.failure

    def hold_on(self) -> bool:
        """Let a moment pass, and take in what arrives; whether the run is over."""
        self._raise_failure()
        self.mailbox.arrived(None, _SETTLE_S)
        return self._is_over()

    def sleep(self, seconds: float) -> Awaitable[None]:
        self.longest_s = max(self.longest_s, seconds)
        time.sleep(seconds)
        return Done(None)
