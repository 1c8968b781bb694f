"""A network that learns: the `Learner` of a task."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import nan
from typing import Any
from weakref import WeakMethod

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.scenarios.workload import Trained, UserTask
from lockstep.workloads import dropout, models, samples, seeds, tasks
from lockstep.workloads.alignment import aligned
from lockstep.workloads.base import Evaluation, Ready
from lockstep.workloads.batches import Batches, part
from lockstep.workloads.evaluation import evaluate, try_loss
from lockstep.workloads.loading import Loaders, Sample
from lockstep.workloads.partition import deal
from lockstep.workloads.precision import Precision
from lockstep.workloads.sizes import sizes
from lockstep.workloads.spare import Spare
from lockstep.workloads.streams import finished
from lockstep.workloads.task import Loss, trained

Unlike = Callable[[Tensor, Callable[[float], Tensor]], None]
"""Raises if a compiled model's gradient is not the model's: see compiling.py."""


class _Filling:
    """A flat gradient that a backward pass fills piece by piece, roughly from its end to its beginning."""

    def __init__(self, gradient: Tensor, counts: list[int], ready: Ready | None) -> None:
        self._gradient = gradient
        self._pieces = torch.split(gradient, counts)
        self._starts = [0, *accumulate(counts)]
        self._missing = [True] * len(counts)
        self._first = len(counts)  # the pieces from this one on are there
        self._ready = ready

    def put(self, number: int, piece: Tensor) -> None:
        """Copy a piece to its place; tell how far back it is there now, if not all of it is."""
        self._pieces[number].copy_(piece.flatten())
        self._missing[number] = False
        before = self._first
        while self._first and not self._missing[self._first - 1]:
            self._first -= 1
        if self._ready is not None and 0 < self._first < before:
            self._ready(self._starts[self._first], self._gradient)

    def whole(self) -> Tensor:
        """The gradient, once the pass is over; 0 where the loss does not depend on a parameter."""
        for number in range(self._first):
            if self._missing[number]:
                self._pieces[number].zero_()
        return self._gradient


@dataclass
class _Constant:
    """A buffer, and what it had before any forward pass."""

    where: dict[str, Tensor | None]  # the buffers of its module
    name: str
    buffer: Tensor
    first: Tensor
    version: int

    def restore(self) -> None:
        """Undo what has been written into it, or has taken its place."""
        self.where[self.name] = self.buffer
        if self.buffer._version != self.version:
            self.buffer.copy_(self.first)
            self.version = self.buffer._version


def _weakly(take: Callable[[int, Parameter], None], number: int) -> Callable[[Parameter], None]:
    """A hook that does not keep a learner whose module outlives it."""
    held = WeakMethod(take)

    def hook(weight: Parameter) -> None:
        if (found := held()) is not None:
            found(number, weight)

    return hook


def first_parameters(workload: Trained, seed: int) -> Tensor:
    """Return the first parameters of a classifier; of what ships no data are loaded for it."""
    own = seeds.integer(seed, "model")
    return _flat([*trained(tasks.model(tasks.of(workload, own), own).to("cpu")).values()])


def _flat(weights: list[Parameter]) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in weights])


class Classifier:
    """The gradients of a task's loss; the module and the data live on `device`."""

    def __init__(self, workload: Trained, workers: int, seed: int, device: str) -> None:
        self.sizes = sizes(workload)
        self.seed, self.device = seed, torch.device(device)
        self._users = isinstance(workload, UserTask)
        self.task = tasks.of(workload, seeds.integer(seed, "model"))
        self._train, self._test = (
            samples.of(dataset, self.task.collate, self.device)
            for dataset in (self.task.train, self.task.test)
        )
        shares = deal(tasks.labels(self._train, workload), workers, seed, workload.partition)
        self._batches = Batches(shares, workload.batch_size, seed)
        self._loaders: Loaders | None = None
        self._loss = torch.tensor(nan)
        self.module = tasks.model(self.task, seeds.integer(seed, "model")).to(device)
        self.synchronised = workload.synchronised
        self.precision = Precision(workload.computed_in)
        self._by_sample = workload.masks_by_sample
        if self._by_sample:
            dropout.by_sample(self.module)
        self._computed: Any = self.module
        self._unlike: Unlike | None = None  # to look at a compiled model's first gradient
        if workload.compiles:
            from lockstep.workloads.compiling import compiled, require_alike

            self._computed = compiled(self.module, self.device)
            self._unlike = partial(require_alike, precision=workload.computed_in)
        self._weights = [*trained(self.module).values()]
        self._counts = [weight.numel() for weight in self._weights]
        self._filling: _Filling | None = None  # the gradient that is being computed
        for number, weight in enumerate(self._weights):
            weight.register_post_accumulate_grad_hook(_weakly(self._take, number))  # type: ignore[no-untyped-call]
        self._initial = _flat(self._weights)
        self._spare = Spare(self._initial)
        self._norms = [layer for layer in self.module.modules() if isinstance(layer, _BatchNorm)]
        running = {id(buffer) for layer in self._norms for buffer in layer.buffers()}
        self._constants = [
            _Constant(module._buffers, name, buffer, buffer.clone(), buffer._version)
            for module in self.module.modules()
            for name, buffer in module.named_buffers(recurse=False)
            if id(buffer) not in running
        ]
        pieces = torch.split(self._initial, self._counts)
        self._first = [piece.view_as(weight) for weight, piece in zip(self._weights, pieces, strict=True)]
        self._let_go()  # of the model as it was made
        if self._users:
            self.module.eval()
            try_loss(self.task.loss, self._as_made, self._train, self.device)
            self.forget()
        self.module.train()

    def initial(self) -> Tensor:
        """Return the model's initialisation, shape (parameters,): the same vector each time."""
        return self._initial

    def epoch(self, worker: int) -> int:
        """Return the mini-batches in one pass over the worker's share, rounded up."""
        return self._batches.in_epoch(worker)

    def batch(self, worker: int, step: int, number: int = 0, parts: int = 1) -> Any:
        """Return mini-batch `step` of `worker`, or one of equal parts, as the task's loss is given it."""
        loaders = self._loaders
        if loaders is not None and (loaders.worker, loaders.parts) == (worker, parts):
            assert isinstance(self._train, samples.Collated)
            return self._train.moved(loaders.batch(step, number))
        first = number * (self.sizes.batch_size // parts)
        return self._train.batch(
            part(self._batches(worker, step), number, parts),
            lambda place: self._sample_seed(worker, step, first + place),
        )

    def read_ahead(self, worker: int, processes: int, parts: int = 1) -> None:
        """Let so many processes read the mini-batches of `worker` from now on; 0: read each just once.

        They are asked for in so many equal parts.
        """
        assert isinstance(self._train, samples.Collated)

        def stream(worker: int, step: int) -> list[Sample]:
            indices = self._batches(worker, step).tolist()
            return [(index, self._sample_seed(worker, step, place)) for place, index in enumerate(indices)]

        self._loaders = Loaders(self._train.dataset, self._train.collate, stream, worker, processes, parts)

    def end_reading(self) -> None:
        """Let the processes go."""
        if self._loaders is not None:
            self._loaders.end()

    def _sample_seed(self, worker: int, step: int, place: int) -> int:
        return seeds.integer(self.seed, "sample", worker, step, place)

    @contextmanager
    def random(
        self, worker: int, step: int, number: int | None = None, parts: int = 1, layer: int = 0
    ) -> Iterator[None]:
        """Inside it, layers draw what is random in a mini-batch, or in a layer of one of equal parts."""
        masks: AbstractContextManager[None] = nullcontext()
        if self._by_sample:
            first = (number or 0) * (self.sizes.batch_size // parts)
            masks = dropout.computing(dropout.Samples(self.seed, worker, step, first))
        where = () if number is None else (number, layer)
        seed = seeds.integer(self.seed, "dropout", worker, step, *where)
        with self._seeded(seed), masks:
            yield

    def loss_of(self, worker: int, step: int, number: int) -> Loss:
        """The task's loss for a micro-batch in passes: called more than once, it draws the same each time."""
        if not self._users:
            return self.task.loss
        seed = seeds.integer(self.seed, "loss", worker, step, number)

        def drawing(model: Callable[..., Any], batch: Any) -> Tensor:
            with samples.everything_seeded(seed, self.device):
                return self.task.loss(model, batch)

        return drawing

    def _seeded(self, seed: int) -> AbstractContextManager[None]:
        """What ships draws from torch's generator alone."""
        if self._users:
            return samples.everything_seeded(seed, self.device)
        return models.seeded(self.device, seed)

    def gradient(self, parameters: Tensor, worker: int, step: int, ready: Ready | None = None) -> Tensor:
        """Return the gradient of the batch's mean cross entropy, a new vector of shape (parameters,).

        Raises `ScenarioError` if a compiled model's first one is not that of the model.
        """
        batch = self.batch(worker, step)
        if self._unlike is not None:
            self._compare(self._unlike, parameters, batch, worker, step)
            self._unlike, self._spare = None, Spare(self._initial)
        return self._gradient(self._computed, parameters, batch, worker, step, ready)

    def _compare(self, unlike: Unlike, parameters: Tensor, batch: Any, worker: int, step: int) -> None:
        """Compute it by the compiled model and by the model itself, each on a batch that it may change."""

        def plain(off: float) -> Tensor:
            there = parameters.clone()
            there[::2] *= 1 + off
            return self._gradient(self.module, there, deepcopy(batch), worker, step)

        unlike(self._gradient(self._computed, parameters, deepcopy(batch), worker, step), plain)

    def _gradient(
        self,
        module: Any,
        parameters: Tensor,
        batch: Any,
        worker: int,
        step: int,
        ready: Ready | None = None,
    ) -> Tensor:
        self.fill(parameters)
        with models.deterministic(), self.random(worker, step):
            with self.precision.computing(self.device):
                loss = self.task.loss(module, batch)
            self._loss = loss.detach().to("cpu", non_blocking=True)  # there before any piece of the gradient
            ready = None if self.precision.repeats else ready  # what it is told of is final
            gradient = self.precision.backward(partial(self._backward, loss, ready))
        if ready is None:
            finished(gradient)
        self._let_go()
        return gradient

    def _let_go(self) -> None:
        """Hold the first parameters until there are others: these may lie where a sender puts the next.

        And what was in buffers: a task may give the same module to the next learner.
        """
        self.forget()
        for weight, first in zip(self._weights, self._first, strict=True):
            weight.data = first

    def _backward(self, loss: Tensor, ready: Ready | None, times: float, again: bool) -> Tensor:
        """Go back from so many times a loss, which may be asked once more if `again`; a new gradient."""
        self._filling = filling = _Filling(self._spare.vector(), self._counts, ready)
        loss = loss if times == 1 else loss.float() * times
        loss.backward(retain_graph=again)  # type: ignore[no-untyped-call]
        self._filling = None
        return filling.whole()

    @property
    def loss(self) -> float:
        """The mean loss over the mini-batch of the last gradient."""
        return float(self._loss)

    def _take(self, number: int, weight: Tensor) -> None:
        """Move the gradient of a weight to its place as soon as the backward pass has made it."""
        if self._filling is None:  # it is another learner's, to whom the task has given the same module
            return
        assert weight.grad is not None
        self._filling.put(number, weight.grad)
        weight.grad = None

    def evaluate(self, parameters: Tensor) -> Evaluation:
        """Return the mean loss and the metrics on the test set, without dropout.

        Batch normalisation uses the statistics of the first training samples at these very parameters, not
        running averages, so that an evaluation does not depend on what was computed before.
        """
        self.fill(parameters)
        self.module.eval()
        with torch.no_grad(), self._seeded(0), self.precision.computing(self.device):
            if self._norms:
                self._measure_statistics()
            loss = self.task.loss if self._users else tasks.outputs
            found = evaluate(loss, self.task.metrics, self.module, self._test)
        self.module.train()
        self._let_go()
        return found

    def _measure_statistics(self) -> None:
        for layer in self._norms:
            layer.reset_running_stats()
            layer.momentum = None  # the average of what follows
            layer.train()
        self.task.loss(self.module, self._train.range(0, samples.CHUNK))
        for layer in self._norms:
            layer.eval()

    def fill(self, parameters: Tensor) -> None:
        """Let the module compute with these parameters, where they lie.

        What does not lie as torch's own memory does is copied: the last bits can depend on that.
        """
        pieces = torch.split(parameters.to(self.device), self._counts)
        for weight, piece in zip(self._weights, pieces, strict=True):
            weight.data = aligned(piece).view_as(weight)
        self.forget()

    def _as_made(self) -> torch.nn.Module:
        self.forget()
        return self.module

    def forget(self) -> None:
        """Undo what forward passes have written into buffers, other than running averages."""
        for constant in self._constants:
            constant.restore()
