"""Counts the parameters and FLOPs of a model with torch, which takes seconds; no data is loaded.

`python -m lockstep.workloads.counting` counts every model on every shape of image, and writes what
`lockstep.workloads.sizes` looks up: minutes, when torchvision has changed.
"""

import csv
import functools
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.flop_counter import FlopCounterMode

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.code import Code
from lockstep.scenarios.workload import Trained, UserTask
from lockstep.workloads import evaluation, models, samples, tasks, tracing, users
from lockstep.workloads.forms import FORMS, Form
from lockstep.workloads.keeping import Keeping, storage_of
from lockstep.workloads.layers import Layer
from lockstep.workloads.sizes import COLUMNS, TABLE, image
from lockstep.workloads.task import Loss, Metric, defined, inputs, lost, scalar, trained

_ITEMSIZE = 4  # bytes of an element: float32
# What torch raises where a model does not fit its input.
MISFITS = (RuntimeError, ValueError, AssertionError, TypeError, AttributeError, LookupError)


def count(name: str, form: Form, *batches: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the parameters, and for each size of batch the FLOPs of a gradient and what it keeps.

    A multiply-add is two FLOPs. What is kept from the forward to the backward pass is in bytes, but for
    parameters and buffers. Raises ScenarioError for a model that does not exist, and one of MISFITS for one
    that cannot be trained.
    """

    def batch(samples: int) -> tuple[Tensor, Tensor]:
        x = torch.empty(samples, *form.shape, device="meta")
        return x, torch.empty(samples, dtype=torch.long, device="meta")

    model = tasks.on_meta(partial(models.named, name, form.shape, form.classes))
    return counted(model, tasks.cross_entropy, batch, *batches)


def counted(
    model: nn.Module, loss: Loss, batch: Callable[[int], Any], *batches: int
) -> tuple[int, list[tuple[int, int]]]:
    """As `count`, of a model and a loss wherever they lie; `batch` makes one of so many samples there."""
    ours, found = {storage_of(tensor) for tensor in (*model.parameters(), *model.buffers())}, []
    for size in batches:
        keeping, given = Keeping(ours), batch(size)
        with FlopCounterMode(display=False) as counter, models.seeded(torch.device("cpu"), 0):
            with keeping:
                lost = scalar(loss(model, given), loss)
            lost.backward()  # type: ignore[no-untyped-call]
        found.append((int(counter.get_total_flops()), keeping.nbytes))
    return sum(weight.numel() for weight in trained(model).values()), found


@functools.cache
@users.aside()
def of_task(code: Code, batch: int) -> tuple[int, list[tuple[int, int]]]:
    """As `count`, of a user's task; what the meta device cannot do is computed, with one mini-batch.

    Raises `ScenarioError` if it cannot be trained.
    """
    look = tasks.look_at(code)
    try:
        return counted(look.model, look.loss, look.batch, batch)
    except ScenarioError:
        raise
    except Exception:
        task = users.call(code, 0)
        train = samples.of(task.train, task.collate, torch.device("cpu"))
        model = tasks.model(task, 0)
        try:
            return users.guarded(code, counted, model, task.loss, partial(train.range, 0), batch)
        finally:
            model.zero_grad(set_to_none=True)  # a task may give the same one to all


@functools.cache
@users.aside()
def try_metrics(code: Code) -> None:
    """Try the metrics of a user's task on two samples: a mistake would else be found when a run has ended.

    Raises `ScenarioError` for what they raise, or for values of which there is no mean.
    """
    look = tasks.look_at(code)
    if not look.metrics:
        return
    try:
        found = _measured(look.loss, look.metrics, look.model, look.held_out(2))
    except Exception:
        task = users.call(code, 0)
        test = samples.of(task.test, task.collate, torch.device("cpu"))
        model = tasks.model(task, 0).eval()
        both = users.guarded(code, test.range, 0, 2, on="test")
        found = users.guarded(code, _measured, task.loss, task.metrics, model, both, on="test")
    for name, value in found.items():
        parts = value if isinstance(value, tuple) and len(value) == 2 else (value,)
        if not all(isinstance(part, Tensor | int | float | np.generic) for part in parts):
            said = "a tensor, a number or a pair (sum, number)"
            problem = f"the task's metric {name!r} must return {said}, not {type(value).__name__}"
            problem += defined(look.metrics.get(name, look.loss))
            raise ScenarioError(problem, key="workload.task")


@functools.cache
@users.aside()
def try_loss(code: Code) -> None:
    """Try the loss of a user's task on a sample, with a model in memory. Raises `ScenarioError` for a sum."""
    task = users.call(code, 0)
    train = samples.of(task.train, task.collate, torch.device("cpu"))
    model = users.guarded(code, tasks.model, task, 0)
    evaluation.try_loss(task.loss, lambda: deepcopy(model).eval(), train, torch.device("cpu"))


def _measured(loss: Loss, metrics: Mapping[str, Metric], model: nn.Module, batch: Any) -> dict[str, Any]:
    with torch.no_grad(), models.seeded(torch.device("cpu"), 0):
        return evaluation.measured(loss, metrics, model, batch)


@functools.cache
@users.aside()
def layers(workload: Trained, samples: int) -> tuple[Layer, ...]:
    """The layers of a workload's model, of a mini-batch of so many samples; the last one has the loss.

    Raises as `count` does.
    """
    look = tasks.look(workload)
    model, loss, batch = look.model, look.loss, look.batch(samples)
    x = inputs(loss, batch)
    found = tracing.pieces(model, x)
    if isinstance(workload, UserTask):
        _require_one_call(model, loss, batch)
    ours = {storage_of(tensor) for tensor in (*model.parameters(), *model.buffers())}
    layers: list[Layer] = []
    before: set[StorageWeakRef] = set()  # what the layer before keeps
    with models.seeded(torch.device("cpu"), 0):
        for number, (piece, called) in enumerate(zip(found, tracing.names(found), strict=True)):
            x = x.detach().requires_grad_(number > 0)
            keeping, last = Keeping(ours), number == len(found) - 1
            with keeping, FlopCounterMode(display=False) as forward:
                y = piece.module(x)
                if last:
                    y = lost(loss, batch, y)
            if x.requires_grad:
                keeping.note(x)
            wanted = [x, *piece.weights] if x.requires_grad else piece.weights
            with FlopCounterMode(display=False) as backward:
                torch.autograd.grad(y, wanted, torch.empty_like(y))
            layers.append(
                Layer(
                    called,
                    sum(weight.numel() for weight in piece.weights),
                    forward.get_total_flops() / samples,
                    backward.get_total_flops() / samples,
                    0.0 if last else y.numel() / samples,
                    keeping.nbytes / (_ITEMSIZE * samples),
                    sum(keeping.kept[each] for each in keeping.kept.keys() & before) / (_ITEMSIZE * samples),
                    piece.calls,
                    piece.tied,
                )
            )
            before, x = set(keeping.kept), y
    return tuple(layers)


def _require_one_call(model: nn.Module, loss: Loss, batch: Any) -> None:
    """Raise ValueError unless a loss calls its model once: what is cut is computed once."""
    calls: list[None] = []
    hook = model.register_forward_pre_hook(lambda *_: calls.append(None))
    try:
        with torch.no_grad():
            loss(model, batch)
    finally:
        hook.remove()
    if len(calls) != 1:
        raise ValueError(f"the loss calls the model {len(calls)} times")


def row(name: str, form: Form) -> tuple[int, ...]:
    """Return parameters; FLOPs a sample, and FLOPs that a batch of any size costs (in swin_v2 alone).

    Then likewise the bytes that are kept: of a sample, and of a batch of any size.
    """
    parameters, (two, three) = count(name, form, 2, 3)
    both = [part for a, b in zip(two, three, strict=True) for part in (b - a, 3 * a - 2 * b)]
    return parameters, *both


def _rows() -> Iterator[tuple[str | int, ...]]:
    forms = {form.shape: form for form in FORMS.values()}
    for name in models.names():
        for form in forms.values():
            try:
                yield name, image(form), *row(name, form)
            except MISFITS:  # too small an image: whoever asks is told why
                continue


if __name__ == "__main__":
    rows = list(_rows())
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
