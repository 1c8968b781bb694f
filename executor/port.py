"""What a node stands on in real time (job/port.py): the monotonic clock, sockets, the device of this process.

Threads block in `until`. The rest is under the turn of whose activity it is (turns.py).
"""

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from math import inf, nan
from threading import get_ident
from typing import Any

import torch
import torch.distributed as dist

from lockstep.executor.activities import Activities
from lockstep.executor.backward import Beside
from lockstep.executor.devices import to_device
from lockstep.executor.inbox import Arrived, Inbox, Received
from lockstep.executor.running import run_to_end
from lockstep.executor.stopping import Stopping
from lockstep.executor.termination import settle
from lockstep.executor.transport import Transport
from lockstep.executor.turns import Turns
from lockstep.executor.waiting import Blocking, Timer
from lockstep.job.events import Event, Retired
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.job.port import Work
from lockstep.strategies import Collective, Message, Source, Vector
from lockstep.strategies.parameter_server import shard_of
from lockstep.workloads import Learner
from lockstep.workloads.compute_time import ComputeTime
from lockstep.workloads.slowness import slowness

_SLICE_S = 0.05  # how often a thread that waits looks whether the run is over
_POLL_S = 0.002  # messages are waited for in whole milliseconds
_SETTLE_S = 0.01  # how often a worker whose program has ended looks whether the others' have
_BYE = "bye"  # a child will send no more


class RealPort:
    """See `job.port.Port` for what each member means."""

    node: Node

    def __init__(
        self,
        plan: Plan,
        rank: int,
        initial: torch.Tensor,
        transport: Transport,
        compute: ComputeTime | None,
        learner: Learner | None,
    ) -> None:
        """compute: how long gradients are to take; None: as long as they take."""
        self.plan, self.rank, self.initial = plan, rank, initial
        self.transport, self.store = transport, transport.store
        self.learner = learner
        self.compute_time, self.slowness = compute, slowness(plan.scenario).get(rank)
        self.backward_share = getattr(plan.scenario.cluster.compute, "backward", 0.0)
        self.zero = time.monotonic()
        self.turns = Turns()
        self.inbox = Inbox(self._fetch)
        self.activities = Activities(lambda program, number: run_to_end(program, self, number))
        self.stopping = Stopping(plan, self.store)
        self.overruns: list[float] = []  # real ÷ drawn duration of gradients that took too long
        self.longest_s = 0.0  # the longest piece of work
        self.in_collective = False
        self.join_workers: Callable[[], None] = lambda: None  # all, for native collectives
        self.leave: Callable[[str, bytes], None] = lambda name, content: None  # a file, for who watches
        self._pending: list[Blocking] = []  # what will become due
        self._blocked: dict[int, Event] = {}  # by thread
        self._byes = 0
        self._fetched: dict[tuple[str, int], int] = {}  # messages of a kind from a sender
        self._beside = Beside(initial.device)
        self._closing = False

    @property
    def now(self) -> float:
        return time.monotonic() - self.zero

    # ---------------------------------------------------------------- messages

    def post(self, to: int, message: Message) -> Awaitable[None]:
        m = message
        header = (m.kind, m.sender, m.version, m.batches, m.part, float(m.weight), m.sources, self.now)
        return self.transport.send(to, header, m.body)  # type: ignore[arg-type]

    def collect(self) -> None:
        while self.inbox.wait(0.0):
            pass
        self._go_on()

    def _fetch(self, timeout_s: float) -> Arrived | bool | None:
        """The next message that has arrived; False for a farewell, None for nothing."""
        found = self.transport.receive(timeout_s)
        if found is None:
            return None
        (kind, sender, version, batches, part, weight, sources, start), body = found
        if kind == _BYE:
            self._byes += 1
            return False
        nbytes = 0 if body is None else body.nbytes
        if body is not None:
            body = to_device(body, self.initial.device)
        pushed_by = tuple(Source(*source) for source in sources)
        number = self._fetched[kind, sender] = self._fetched.get((kind, sender), 0) + 1
        received: Any = Received(kind, sender, body, version, batches, part, weight, pushed_by, number)
        return Arrived(received, start, nbytes)

    # ---------------------------------------------------------------- waiting

    def wait(self, seconds: float) -> Event:
        self.longest_s = max(self.longest_s, seconds)
        return self._at(self.now + seconds)

    def _at(self, instant: float, keeps_turn: bool = False) -> Timer:
        timer = Timer(self.zero + instant, keeps_turn)
        self._pending.append(timer)
        return timer

    def until(self, event: Event) -> None:
        """Block this thread until an event has happened. Raises Retired if that is not to be waited for."""
        if isinstance(event, Blocking):
            with nullcontext() if event.keeps_turn else self.turns.others():
                event.block()
            self._go_on()
            if event.callbacks is not None:
                event.happen(event.value)
            return
        self.look_for_the_end()
        self._go_on()
        thread = get_ident()
        self._blocked[thread] = event
        try:
            while event.callbacks is not None:
                self._stop_if_nobody_can_send(event)
                with self.turns.others():
                    self.inbox.wait(self._patience(), event)
                self._go_on()
                self.look_for_the_end()
        finally:
            del self._blocked[thread]

    def _patience(self) -> float:
        """How long to wait for messages: until shortly before something else is due."""
        next_at = min((event.at for event in self._pending if isinstance(event, Timer)), default=inf)
        left_s = next_at - time.monotonic()
        if left_s > _POLL_S:
            return min(_SLICE_S, left_s - _POLL_S)
        time.sleep(max(0.0, left_s))
        return 0.0

    def _go_on(self) -> None:
        """Hand over what has arrived, and let happen what is due."""
        self.inbox.hand_over(self.node.take_in)
        while due := [event for event in self._pending if event.due()]:
            for event in due:
                self._pending.remove(event)
                event.happen(event.value)

    def _stop_if_nobody_can_send(self, event: Event) -> None:
        """Only a parent could still send something to who has heard all its children's farewells."""
        node = self.node
        if not node.children or self._byes < len(node.children) or self.inbox:
            return
        senders = [sender for _, sender, wanted in node.waiting if wanted is event]
        if senders and senders[0] not in node.parents:
            raise Retired

    def look_for_the_end(self) -> None:
        """Raise Retired at the end of the run, unless others may wait for this worker in a collective."""
        self._raise_failure()
        if self._closing or (self.stopping.over(self.now) and (self.node.children or self.stopping.alone())):
            raise Retired

    # ---------------------------------------------------------------- the device

    def compute(self, parameters: Vector, step: int, down_to: Sequence[int] = ()) -> Work:
        self.look_for_the_end()
        start, learner = self.now, self.learner
        if down_to and learner is not None and self.compute_time is None and self.slowness is None:
            return self._beside_messages(learner, parameters, step, down_to, start)
        gradient, loss = self.initial, nan
        if learner is not None:
            with self.turns.others():
                gradient = learner.gradient(parameters, self.rank, step)  # type: ignore[arg-type]
                if gradient.is_cuda:
                    torch.cuda.synchronize(gradient.device)
            loss = learner.loss
        seconds = self._seconds(start, self.now - start)
        share, n = self.backward_share, len(parameters)
        parts = [self._at(start + seconds * (1 - share * element / n), True) for element in down_to]
        end = max(self.now, start + seconds) if down_to else None
        return Work(start, end, self._at(start + seconds), parts, lambda: (gradient, loss), lambda: None)

    def _seconds(self, start: float, real: float) -> float:
        """How long a gradient is to take that has taken so long; a straggler waits until it would be done."""
        if self.compute_time is None:
            duration = self.slowness.seconds(start, real) if self.slowness else real
        else:
            duration = self.compute_time.draw(start)
            if real > duration:
                self.overruns.append(real / duration if duration else inf)
        self.longest_s = max(self.longest_s, duration, real)
        return duration

    def _beside_messages(
        self, learner: Learner, parameters: Any, step: int, down_to: Sequence[int], start: float
    ) -> Work:
        """A gradient whose first parts travel while the others are computed."""
        found = self._beside.backward(
            lambda ready: learner.gradient(parameters, self.rank, step, ready), down_to, lambda: self.now
        )
        self._pending.append(found.done)  # parts happen where they are awaited: on a GPU that is to wait too
        return Work(
            start, None, found.done, found.parts, lambda: (found.gradient, learner.loss), lambda: None
        )

    def cost(self, nbytes: int, codec: str = "", decoding: bool = False) -> float:
        return 0.0  # it takes the time that it takes

    # ---------------------------------------------------------------- collectives

    def collective(self, program: Collective, vector: Vector) -> Awaitable[Vector] | None:
        return None

    async def all_reduce(self, vector: Vector) -> tuple[Vector, int]:
        p = len(self.plan.workers)
        if p > 1 and not self.stopping.together():
            raise Retired
        # One more value: how many workers have seen the end of the run. None may leave before all know.
        ending = vector.new_tensor([float(self.stopping.over(self.now))])  # type: ignore[attr-defined]
        total = torch.cat([vector, ending])  # type: ignore[list-item]
        if p > 1:
            with self.turns.others():
                self.in_collective = True
                if not dist.is_initialized():
                    self.join_workers()
                dist.all_reduce(total)
                self.in_collective = False
        if bool(total[-1]):  # on a GPU this waits for the sum
            raise Retired
        # As in a ring: every chunk but one to be summed, and every one but one that is.
        kept = [shard_of(vector, (self.rank + step) % p, p).nbytes for step in (1, 2)]
        return total[:-1], 2 * vector.nbytes - sum(kept)

    # ---------------------------------------------------------------- the run

    def show(self, version: int, part: Vector) -> None:
        if self.plan.scenario.stop.target_accuracy is None:
            return
        owner = self.node.owner
        place = self.plan.owners.evaluated.index(owner)
        self.leave(f"snapshot-{place}-{version}", part.cpu().numpy().tobytes())  # type: ignore[attr-defined]
        self.store.set(f"snapshot/{place}", str(version))

    def start(self, program: Coroutine[Any, Any, None]) -> None:
        self.activities.start(program)

    def finish(self) -> None:
        """See the second activities to their end; tell those above that this node will send no more."""
        node = self.node
        node.end()
        if node.role.kind == "worker" and not node.parents:
            settle(self)
        self._closing = True
        self.activities.join()
        self._beside.end()
        self._go_on()
        self._raise_failure()
        if node.memory is not None:
            node.memory.leave()
        for parent in node.parents:
            self.transport.send(parent, (_BYE, self.rank, 0, 0, 0, 1.0, (), 0.0), None)

    def hold_on(self) -> bool:
        """Let a moment pass, and take in what arrives; whether the run is over."""
        self._raise_failure()
        self.inbox.wait(_SETTLE_S)
        self.turns.take(0)
        try:
            self._go_on()
        finally:
            self.turns.give_up()
        return self.stopping.over(self.now)

    def idle(self) -> int | None:
        """The messages handed over so far, if all second activities wait for more; None: one goes on."""
        self.turns.take(0)
        try:
            pending = [event for event in list(self._blocked.values()) if event.callbacks is not None]
            goes_on = len(self.inbox) or self._pending or len(pending) < self.activities.alive()
            return None if goes_on else self.inbox.handed_over
        finally:
            self.turns.give_up()

    def waits(self) -> tuple[tuple[str | None, int | None], ...] | None:
        """What all activities of the node wait for, kind and sender; None if one does something else."""
        if self.in_collective:
            return (("all-reduce", None),)
        blocked = {id(event) for event in list(self._blocked.values())}
        waiting = tuple(
            (kind, sender) for kind, sender, event in list(self.node.waiting) if id(event) in blocked
        )
        activities = self.activities.alive() + (not self.node.program_ended)
        return waiting if len(waiting) >= activities else None

    def _raise_failure(self) -> None:
        """Raise what ended a second activity."""
        if self.activities.failure is not None:
            raise self.activities.failure
