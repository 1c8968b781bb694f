"""What a node stands on in real time (job/port.py): the monotonic clock, sockets, the device of this process.

Threads block in `until`. The rest is under the turn of whose activity it is (turns.py).
"""

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from math import inf
from threading import get_ident, local
from typing import Any, TypeVar

import torch

from lockstep.executor import native
from lockstep.executor.activities import Activities, Program
from lockstep.executor.anew import ANEW, Anew
from lockstep.executor.computing import Computing
from lockstep.executor.devices import to_device, use
from lockstep.executor.inbox import Arrived, Inbox
from lockstep.executor.running import run_to_end
from lockstep.executor.stopping import Stopping
from lockstep.executor.termination import await_termination
from lockstep.executor.transport import Sent, Transport
from lockstep.executor.turns import Turns
from lockstep.executor.waiting import Alarm, Blocking, Timer
from lockstep.job.events import Event, Retired
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.job.port import Arrival, Cost, PassOf, Work
from lockstep.strategies.node import Collective, Group, Message, Source, Vector
from lockstep.workloads import Learner
from lockstep.workloads.compute_time import ComputeTime

_SLICE_S = 0.05  # how often a thread that waits looks whether the run is over
_POLL_S = 0.002  # messages are waited for in whole milliseconds
_SETTLE_S = 0.01  # how often a worker whose program has ended looks whether the others' have
_NEWS_S = 0.05  # how often a node looks who has died by itself
B = TypeVar("B", bound=Blocking)
_AS_LONG_AS_IT_TAKES = Cost(0.0)
_BYE = "bye"  # a child will send no more


class RealPort:
    """See `job.port.Port` for what each member means."""

    node: Node
    take_in: Callable[[Arrival], None]
    """What messages are handed to: the node's."""
    hear: Callable[[Arrival], None]
    """The same for what no link carries, and so no cut holds up: the failure detector's word."""
    hears = False
    """Whether messages are taken in, too, while an emulated gradient goes on."""

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
        self.learner, self.replica = learner, plan.replica(rank)
        self.clock, self.zero = self, time.monotonic()
        self.turns = Turns()
        self.inbox = Inbox(self._fetch, transport.there, transport.wake)
        self.activities = Activities(self._run_beside, (Anew,))
        self._begun_anew = 0  # how often
        self._thread = local()
        self.stopping = Stopping(plan, self.store)
        self.in_collective = False
        self.broken = False  # whether a server has begun anew, and with it the connections to it
        self.ended: dict[int, int] = {}  # those who send no more, and on which connection they said so
        self.held_up = 0  # messages that have arrived, and may not be handed over yet
        self.join_workers: Callable[[], None] = lambda: None  # all, for native collectives
        self.process_group: Any = None  # those of the node's data group, once they have joined; None: all
        self.leave: Callable[[str, bytes], None] = lambda name, content: None  # a file, for who watches
        self._pending: list[Blocking] = []  # what will become due
        self._blocked: dict[int, Event] = {}  # by thread
        self._closing = False
        self._look_at = 0.0  # whether the run is over
        self.look_for_deaths: Callable[[], None] | None = None  # of processes, by themselves, now and then
        self.computing = Computing(self, compute)

    @property
    def now(self) -> float:
        return time.monotonic() - self.zero

    def tell_time(self) -> float:
        return self.now

    # ---------------------------------------------------------------- messages

    def post(self, to: int, message: Message) -> Sent:
        m = message
        header = (m.kind, m.sender, m.version, m.batches, m.part, float(m.weight), m.sources, self.now)
        return self.transport.send(to, header, m.body)  # type: ignore[arg-type]

    def _fetch(self, timeout_s: float) -> Arrived | bool | None:
        """The next message that has arrived; False for a farewell, None for nothing."""
        found = self.transport.receive(timeout_s)
        if found is None:
            return None
        (kind, sender, version, batches, part, weight, sources, start), body = found
        if kind == _BYE:
            self.node.ending.left(sender)
            self.ended[sender] = self.transport.came_by
            return False
        if kind == ANEW:
            self.broken = True
            return False
        nbytes = 0 if body is None else body.nbytes
        if body is not None:
            body = to_device(body, self.initial.device)
        pushed_by = tuple(Source(*source) for source in sources)
        message = Message(kind, sender, body, version, batches, part, weight, pushed_by)
        return Arrived(message, start, nbytes, connection=self.transport.came_by)

    # ---------------------------------------------------------------- waiting

    def wait(self, seconds: float, working: bool = False) -> Event:
        self.computing.longest_s = max(self.computing.longest_s, seconds)
        self.computing.busy_until = None
        return self.at(self.now + seconds)

    def at(self, instant: float) -> Timer:
        """What happens at an instant of the clock."""
        return self.let_happen(Timer(self.zero + instant))

    def alarm(self, instant: float) -> Timer:
        """The same for what the node itself does not wait for."""
        return self.let_happen(Alarm(self.zero + instant))

    def let_happen(self, event: B) -> B:
        """Once it is due."""
        self._pending.append(event)
        return event

    def forget(self, event: Blocking) -> None:
        """Let it never happen."""
        if event in self._pending:
            self._pending.remove(event)

    def until(self, event: Event) -> None:
        """Block this thread until an event has happened. Raises Retired if that is not to be waited for.

        Messages are taken in here, and not while an activity goes on: a replay knows no instants in between.
        """
        self._wake_others()
        self.look_for_the_end()
        self.computing.begin(self.turns)
        if isinstance(event, Blocking) and not (self.hears and isinstance(event, Timer)):
            with self.turns.others():
                event.block()
        else:
            self._wait_for_messages(event)
        self.inbox.look()
        self._go_on()
        if self.broken:  # a gradient that ends then is of parameters that are no more
            raise Anew
        if event.callbacks is not None:
            event.happen(event.value)

    def _wait_for_messages(self, event: Event) -> None:
        """Block until an event has happened that comes of a message, or of another activity."""
        self._go_on()
        thread = get_ident()
        self._blocked[thread] = event
        try:
            while event.callbacks is not None:
                self.computing.busy_until = None
                self._stop_if_nobody_can_send(event)
                with self.turns.others():
                    self.inbox.wait(self._patience(), event)
                self._go_on()
                self.look_for_the_end()
        finally:
            del self._blocked[thread]

    def _wake_others(self) -> None:
        """Let those go on that wait for messages, but whose event this activity has let happen."""
        if len(self._blocked) and any(event.callbacks is None for event in list(self._blocked.values())):
            self.inbox.nudge()

    def _run_beside(self, program: Program) -> None:
        use(self.initial.device)
        self._thread.began = self._begun_anew
        run_to_end(program, self)
        self._wake_others()

    def is_of_before(self) -> bool:
        """Whether this activity was begun before the node last began anew."""
        return getattr(self._thread, "began", self._begun_anew) != self._begun_anew

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
        self.inbox.hand_over(self.take_in)
        while self._pending and (due := [event for event in self._pending if event.due()]):
            for event in due:
                self._pending.remove(event)
                event.happen(event.value)

    def _stop_if_nobody_can_send(self, event: Event) -> None:
        if not self.node.children or self.inbox or self.held_up:
            return
        senders = [sender for _, sender, _, wanted in self.node.mailbox.waiting if wanted is event]
        if senders and self.node.ending.in_vain(self.rank, senders[0]):
            raise Retired

    def over(self) -> bool:
        """Whether the run is over, by the clock or as others say."""
        ending, now = self.node.ending, time.monotonic() - self.zero
        if now >= self._look_at:
            if not ending.at(now) and self.stopping.said():
                ending.said()
            self._look_at = self.stopping.look_at(now)
            if self.look_for_deaths is not None:
                self.look_for_deaths()
                self._look_at = min(self._look_at, now + _NEWS_S)
        return ending.over

    def look_for_the_end(self) -> None:
        """Raise Retired at the end of the run, unless others may wait for this worker in a collective.

        Raises Anew if connections are broken.
        """
        self._raise_failure()
        if (
            self._closing
            or self.is_of_before()
            or (self.over() and (self.node.children or self.stopping.alone()))
        ):
            raise Retired
        if self.broken:
            raise Anew

    # ---------------------------------------------------------------- the device

    def compute(
        self, parameters: Any, step: int, down_to: Sequence[int] = (), of: PassOf | None = None
    ) -> Work:
        return self.computing.compute(parameters, step, down_to, of)

    def later(self, do: Callable[[], None]) -> Timer:
        """Let the device do something as soon as the activity waits; what happens when it has."""
        return self.computing.later(do)

    def cost(self, nbytes: int, codec: str = "", decoding: bool = False) -> Cost:
        self.computing.busy_until = None
        return _AS_LONG_AS_IT_TAKES  # from now

    # ---------------------------------------------------------------- collectives

    def collective(
        self, program: Collective, vector: Vector, among: Group | None = None, beside: int = 0
    ) -> Awaitable[Vector] | None:
        return None

    def all_reduce(self, vector: Vector) -> Awaitable[tuple[Vector, int]]:
        return native.all_reduce(self, vector)

    # ---------------------------------------------------------------- the run

    def show(self, version: int, part: Vector) -> None:
        if self.plan.scenario.stop.goal is None:
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
        if node.role.kind == "worker" and not node.parents:
            self.settle()
        self._closing = True
        self.activities.join()
        self.computing.end()
        self._go_on()
        self._raise_failure()
        if node.memory is not None:
            node.memory.leave()
        self.say_farewell()

    def settle(self) -> None:
        """Wait until no activity of any worker can go on."""
        await_termination(self)

    def say_farewell(self) -> None:
        """Tell those above that this node will send no more."""
        for parent in self.node.parents:
            self.bid_farewell(parent)

    def bid_farewell(self, to: int) -> None:
        """Tell one of them."""
        self.transport.send(to, (_BYE, self.rank, 0, 0, 0, 1.0, (), 0.0), None)

    def drop_all(self) -> None:
        """Let nothing happen any more of what is under way or has arrived."""
        self._pending, self.held_up, self.broken = [], 0, False
        self.computing.drop_all()
        self._begun_anew += 1
        self.inbox.drop_all()

    def hold_on(self) -> bool:
        """Let a moment pass, and take in what arrives; whether the run is over."""
        self._raise_failure()
        self.inbox.wait(_SETTLE_S)
        self.turns.take()
        try:
            self._go_on()
        finally:
            self.turns.give_up()
        return self.over()

    def idle(self) -> int | None:
        """The messages handed over so far, if all second activities wait for more; None: one goes on."""
        self.turns.take()
        try:
            pending = [event for event in list(self._blocked.values()) if event.callbacks is not None]
            due = any(not isinstance(event, Alarm) for event in self._pending)
            goes_on = len(self.inbox) or due or len(pending) < self.activities.alive()
            return None if goes_on else self.inbox.handed_over
        finally:
            self.turns.give_up()

    def waits(self) -> tuple[tuple[str | None, int | None], ...] | None:
        """What all activities of the node wait for, kind and sender; None if one does something else."""
        if self.in_collective:
            return (("all-reduce", None),)
        blocked = {id(event) for event in list(self._blocked.values())}
        waiting = tuple(
            (kind, sender)
            for kind, sender, _, event in list(self.node.mailbox.waiting)
            if id(event) in blocked
        )
        activities = self.activities.alive() + (not self.node.program_ended)
        return waiting if len(waiting) >= activities else None

    def _raise_failure(self) -> None:
        """Raise what ended a second activity."""
        if self.activities.failure is not None:
            raise self.activities.failure
