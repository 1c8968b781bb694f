"""What a workload is to the engines: sizes always and, when numbers matter, a `Learner`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lockstep.workloads.heap import freed_memory_kept

if TYPE_CHECKING:
    from torch import Tensor


# Told by whoever computes a gradient: all of it from this element on is there. And the vector that it is in.
Ready = Callable[[int, "Tensor"], None]


@dataclass(frozen=True)
class Sizes:
    """How large a workload is: all that a simulation without learning has to know."""

    parameters: int
    itemsize: int  # bytes of one parameter
    batch_size: int
    samples: int | None  # in the training set; None: endless
    flops: float | None  # of one gradient: forward and backward over one mini-batch; None: unknown
    kept: int = 0  # bytes between both passes over a mini-batch, at once through the whole model; 0: unknown

    @property
    def nbytes(self) -> int:
        """Bytes of the parameter vector, and of a gradient."""
        return self.parameters * self.itemsize

    def epoch(self, workers: int, worker: int) -> int:
        """Mini-batches in one pass over a worker's samples if all get as many; 1 if they are endless."""
        if self.samples is None:
            return 1
        return max(1, ceil(len(range(worker, self.samples, workers)) / self.batch_size))


@dataclass(frozen=True)
class Evaluation:
    """Quality of a parameter vector on held-out data."""

    loss: float  # mean cross entropy; of the quadratic, the exact excess over the optimum
    accuracy: float | None  # fraction right, if the workload classifies
    metrics: Mapping[str, float] = field(default_factory=dict)  # a task's others, by name

    def of(self, metric: str) -> float | None:
        """The loss, the accuracy or another metric; None: there is none of that name."""
        return {**self.metrics, "loss": self.loss, "accuracy": self.accuracy}.get(metric)


class Learner(Protocol):
    """Real gradients over flat float32 vectors of shape (parameters,).

    Both `gradient` and `evaluate` are functions of their arguments, the workload, the number of workers and
    the seed: calls in any order and in any process give the same bytes (with `deterministic_threads`, on one
    kind of machine).
    """

    @property
    def sizes(self) -> Sizes:
        """The sizes of the workload."""

    @property
    def loss(self) -> float:
        """The mean loss over the mini-batch of the last gradient, where it was computed; nan before any.

        It is the loss that was differentiated, dropout and all; of the quadratic the excess over the optimum.
        """

    def epoch(self, worker: int) -> int:
        """Return the mini-batches in one pass over `worker`'s own samples, rounded up; 1 if endless."""

    def initial(self) -> Tensor:
        """Return the first parameters, a function of the workload and the seed; nobody changes them."""

    def gradient(self, parameters: Tensor, worker: int, step: int, ready: Ready | None = None) -> Tensor:
        """Return the gradient of the mean loss over mini-batch `step` (from 0) of `worker`, a new vector.

        `parameters` may lie on any device and is not changed; the answer lies on the learner's. If it comes
        in pieces, from the last to the first, `ready` is told of all but the first, which is there when this
        returns: random generators are as before then. The loss is known when it is told.
        """

    def evaluate(self, parameters: Tensor) -> Evaluation:
        """Return the loss and accuracy of `parameters` on held-out data."""


@runtime_checkable
class Reader(Protocol):
    """A learner whose mini-batches can be read by others, apart from its gradients."""

    def read_ahead(self, worker: int, processes: int, parts: int = 1) -> None:
        """Let so many processes read the mini-batches of `worker` from now on; 0: read each just once.

        They are asked for in so many equal parts.
        """

    def end_reading(self) -> None:
        """Let the processes go; whoever has some does this before it ends."""

    def batch(self, worker: int, step: int, number: int = 0, parts: int = 1) -> Any:
        """Return mini-batch `step` of `worker`, or one of equal parts, as the task's loss is given it."""


@contextmanager
def deterministic_threads() -> Iterator[None]:
    """Let torch compute with one thread inside: with more, the order of additions depends on how many."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def learning() -> Iterator[None]:
    """Compute real gradients inside: with `deterministic_threads`, and freed memory kept (heap.py)."""
    with deterministic_threads(), freed_memory_kept():
        yield
