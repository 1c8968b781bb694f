"""Gradients of a simulation that learns, computed by other processes while it goes on.

A gradient is asked for when a worker begins to compute it, and needed when its virtual time has passed:
meanwhile others go on, or compute theirs. By whom and when it is really computed changes no bit, as a
`Learner` promises: its gradients are functions of their arguments.

The processes are forked, as those of torch's data loaders are, so that they have the model and the data. What
one does not answer is computed by the simulation itself, which says what is wrong, if anything is.
"""

import mmap
import multiprocessing
import os
import select
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import starmap
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, NamedTuple, cast
from weakref import ref

from lockstep.scenarios import Workload
from lockstep.scenarios.workload import UserTask
from lockstep.workloads import Evaluation, Learner
from lockstep.workloads.memory import bytes_of, data_bytes, free_bytes

Gradient = tuple[Any, float]  # and the loss
Answer = Gradient | Evaluation
Snapshot = tuple[int, float, Any]  # version, time, parameters
_AFTER_S = 0.08  # of computing gradients, after which it pays to fork: that takes about as long
_NICE = 5  # of processes: the simulation that they work for goes first where cores are few
_LEAST_S = 2e-4  # a gradient: one that takes less is computed sooner than handed on
_MOST = 16  # processes
_BYTES = 2**29  # of the vectors that are on their way, or answers that are not needed yet
_EACH = 2  # vectors on their way to or from a process: one is there when the other is done
_PATIENCE_S, _PATIENCE = 10.0, 50  # or so many gradients, until a process that does not answer is given up
_ALIGNED = 64  # bytes, as torch's own vectors


class Question(NamedTuple):
    """Of some parameters: the gradient of a worker's mini-batch, or, without one, the evaluation."""

    parameters: Any
    batch: tuple[int, int] | None  # worker, step

    def answer(self, learner: Learner) -> Answer:
        """Compute it."""
        if self.batch is None:
            return learner.evaluate(self.parameters)
        return learner.gradient(self.parameters, *self.batch), learner.loss


class Ahead:
    """What a run computes: gradients of at most so many workers at a time, and evaluations."""

    def __init__(self, learner: Learner, workers: int) -> None:
        self._learner, self._workers = learner, workers
        self._computed, self._spent = 0, 0.0
        self._others: Callable[[float], Helpers | None] | None = None
        self._helpers: Helpers | None = None

    def allow(self, workload: Workload) -> None:
        """Let others compute it from now on, once that pays: not users' code, which may mind a fork."""
        if not isinstance(workload, UserTask) and able():
            self._others = partial(Helpers.of, self._learner, self._workers, workload)

    def begin(self, parameters: Any, worker: int, step: int) -> Callable[[], Gradient]:
        """Called when it is needed, what this returns gives the gradient of a mini-batch, and its loss."""
        question = Question(parameters, (worker, step))
        if self._helpers is None:
            return cast(Callable[[], Gradient], partial(self._here, question))
        return cast(Callable[[], Gradient], self._helpers.ask(question))

    def _here(self, question: Question) -> Answer:
        """Compute a gradient; after a while let others compute the next ones."""
        start = perf_counter()
        found = question.answer(self._learner)
        if self._others is not None:
            self._computed += 1
            if self._computed > 1:  # the first one makes much for the first time
                self._spent += perf_counter() - start
            mean = self._spent / max(1, self._computed - 1)
            if self._spent > _AFTER_S and mean > _LEAST_S:
                self._helpers, self._others = self._others(mean), None
        return found

    def evaluations(
        self, snapshots: Iterable[Snapshot], evaluate: Callable[[Any], Evaluation]
    ) -> Iterator[tuple[Snapshot, Evaluation]]:
        """Each with its evaluation, in order; `evaluate` is the learner's, or knows some already."""
        helpers = self._helpers
        if helpers is None or evaluate != self._learner.evaluate:
            yield from ((each, evaluate(each[-1])) for each in snapshots)
            return
        helpers.forget()
        begun = deque[tuple[Snapshot, Asked]]()
        for each in snapshots:
            begun.append((each, helpers.ask(Question(each[-1], None))))
            if len(begun) > helpers.room:
                yield _answered(*begun.popleft())
        yield from starmap(_answered, begun)

    def end(self) -> None:
        """Let the processes go; nobody else is begun."""
        self._others = None
        if self._helpers is not None:
            self._helpers.end()
            self._helpers = None


class Asked:
    """A question that somebody may have answered when the answer is needed."""

    __slots__ = ("__weakref__", "_helpers", "found", "question", "waits", "where")

    def __init__(self, helpers: "Helpers", question: Question) -> None:
        self._helpers, self.question = helpers, question
        self.waits = True  # for somebody to begin
        self.where: Helper | None = None  # who computes it
        self.found: Answer | None = None

    def __call__(self) -> Answer:
        """As soon as it is there."""
        return self._helpers.answer(self)


class Helper:
    """A process, and what it has not answered yet, in its order: slots, and who asks."""

    def __init__(self, learner: Learner, slots: Sequence[Any], others: Sequence[Connection]) -> None:
        context: Any = multiprocessing.get_context("fork")
        self.connection, its = context.Pipe()
        serving = partial(_serve, learner, slots, its, [*others, self.connection])
        self.process = context.Process(target=serving, daemon=True)
        self.asked: deque[tuple[int, ref[Asked]]] = deque()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which torch and NumPy have
            self.process.start()
        its.close()

    def end(self) -> None:
        """Let it go, whatever it computes."""
        self.connection.close()
        self.process.kill()
        self.process.join()


class Helpers:
    """Processes that answer questions, in the order in which they are asked."""

    def __init__(self, learner: Learner, count: int, patience_s: float) -> None:
        self._learner, self._patience_s = learner, patience_s
        self._slots = _shared(learner.initial(), _EACH * count)
        self._free = [*range(len(self._slots))]
        self._waiting = deque[ref[Asked]]()  # for a slot; what nobody wants any more is gone
        self._helpers: list[Helper] = []
        self._told, self._by_number = select.poll(), dict[int, Helper]()
        try:
            for _ in range(count):
                there = [helper.connection for helper in self._helpers]
                helper = Helper(learner, self._slots, there)
                self._helpers.append(helper)
                self._told.register(helper.connection, select.POLLIN)
                self._by_number[helper.connection.fileno()] = helper
        except BaseException:
            self.end()
            raise

    @classmethod
    def of(cls, learner: Learner, workers: int, workload: Workload, mean_s: float) -> "Helpers | None":
        """As many as are of use, where a gradient takes so long; None: none are, or none can be."""
        from joblib import cpu_count  # which knows of a container's share

        nbytes = max(1, learner.initial().nbytes)
        room = (_BYTES // nbytes - workers) // _EACH
        own = bytes_of(workload, learner.sizes) - data_bytes(workload)
        count = min(cpu_count(), workers, room, int(free_bytes() / 2 / max(1, own)), _MOST)
        if count < 2:
            return None
        try:
            return cls(learner, count, max(_PATIENCE_S, _PATIENCE * mean_s))
        except OSError:  # no more processes, or no memory
            return None

    @property
    def room(self) -> int:
        """How many questions they have at a time."""
        return len(self._slots)

    def ask(self, question: Question) -> Asked:
        """Let it be answered, if there is time before that is needed."""
        asked, slot = Asked(self, question), self._slots[0]
        vector = question.parameters
        if self._helpers and (vector.shape, vector.dtype) == (slot.shape, slot.dtype):
            self._waiting.append(ref(asked))
            self._hear(0.0)
        return asked

    def answer(self, asked: Asked) -> Answer:
        """The answer, as soon as it is there; computed here if nobody has begun."""
        self._hear(0.0)
        while asked.found is None and asked.where is not None:
            if not self._hear(self._patience_s):
                self._lose(asked.where)
        asked.waits = False
        if asked.found is None:
            asked.found = asked.question.answer(self._learner)
        return asked.found

    def forget(self) -> None:
        """What nobody has begun is not begun any more."""
        self._waiting.clear()

    def _hear(self, seconds: float) -> bool:
        """Take in what is there, or comes while waiting for it, and hand out what waits; whether any came."""
        heard = self._told.poll(1000 * seconds) if self._helpers else []
        for number, _ in heard:
            self._take(self._by_number[number])
        while self._free and self._waiting and self._helpers:
            asked = self._waiting.popleft()()
            if asked is not None and asked.waits:
                self._hand_out(asked)
        return bool(heard)

    def _take(self, helper: Helper) -> None:
        told: float | Evaluation | None = None
        with suppress(EOFError, OSError):
            told = helper.connection.recv()
        if told is None:  # it could not, or is no more
            self._lose(helper)
            return
        slot, answered = helper.asked.popleft()
        asked = answered()
        if asked is not None:
            asked.where = None
            asked.found = (self._slots[slot].clone(), told) if isinstance(told, float) else told
        self._free.append(slot)

    def _hand_out(self, asked: Asked) -> None:
        helper = min(self._helpers, key=lambda helper: len(helper.asked))
        slot = self._free.pop()
        self._slots[slot].copy_(asked.question.parameters)
        helper.asked.append((slot, ref(asked)))
        asked.where, asked.waits = helper, False
        try:
            helper.connection.send((slot, asked.question.batch))
        except OSError:
            self._lose(helper)

    def _lose(self, helper: Helper) -> None:
        """End it; what it was to compute is computed here."""
        self._helpers.remove(helper)
        self._told.unregister(helper.connection)
        helper.end()
        for slot, each in helper.asked:
            self._free.append(slot)
            if (asked := each()) is not None:
                asked.where = None

    def end(self) -> None:
        """Let all go."""
        for helper in [*self._helpers]:
            self._lose(helper)


def _answered(snapshot: Snapshot, asked: Asked) -> tuple[Snapshot, Evaluation]:
    found = asked()
    assert isinstance(found, Evaluation)
    return snapshot, found


def able() -> bool:
    """Whether processes can be forked here, and nobody else has the cores."""
    import torch

    if not sys.platform.startswith("linux") or torch.cuda.is_available():  # whose threads do not survive it
        return False
    if multiprocessing.current_process().name != "MainProcess":  # one of many, such as a sweep's
        return False
    # Another thread may hold a lock, for which a child would wait; who draws progress holds none of ours.
    here = threading.current_thread()
    others = {type(thread).__name__ for thread in threading.enumerate() if thread is not here}
    return here is threading.main_thread() and others <= {"_RefreshThread"}


def _shared(like: Any, count: int) -> list[Any]:
    """Vectors like another one, in memory that forked processes share."""
    import torch

    each = -(-like.nbytes // _ALIGNED) * _ALIGNED
    memory = mmap.mmap(-1, max(1, count * each))
    return [
        torch.frombuffer(memory, dtype=like.dtype, count=len(like), offset=number * each)
        for number in range(count)
    ]


def _serve(learner: Learner, slots: Sequence[Any], asks: Connection, others: Sequence[Connection]) -> None:
    """Answer questions, gradients in the place of the parameters, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(_NICE)
    for each in others:  # else they would not end when the simulation does
        each.close()
    with suppress(EOFError, OSError):
        while True:
            slot, batch = asks.recv()
            told: float | Evaluation | None = None
            with suppress(Exception):  # who asks computes it, too, and says what is wrong
                found = Question(slots[slot], batch).answer(learner)
                if isinstance(found, Evaluation):
                    told = found
                else:
                    slots[slot].copy_(found[0])
                    told = float(found[1])
            asks.send(told)
