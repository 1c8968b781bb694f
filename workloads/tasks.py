"""The task of a workload: what ships, written as users write theirs, or a user's own."""

import copy
import functools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.code import Code
from lockstep.scenarios.workload import Data, Trained, Transformer, UserTask
from lockstep.workloads import datasets, models, samples, users
from lockstep.workloads.forms import form
from lockstep.workloads.task import Loss, Metric, Task, untrainable
from lockstep.workloads.torchvision_repair import repaired
from lockstep.workloads.transformer import transformer


def of(workload: Trained, seed: int) -> Task:
    """Return the task of a workload; what is random when a user's own is made is a function of `seed`.

    Raises `ScenarioError` for a task or a model that there is not.
    """
    match workload:
        case UserTask():
            return users.call(workload.code, seed)
        case Data():
            its = form(workload)
            model = partial(models.named, workload.model, its.shape, its.classes)
        case Transformer():
            shape = workload.sequence, workload.layers, workload.hidden, workload.heads
            model = partial(transformer, form(workload).classes, *shape)
    train, test = datasets.Shipped(workload, "train"), datasets.Shipped(workload, "test")
    return Task(model, train, test, cross_entropy, CLASSIFICATION)


def model(task: Task, seed: int) -> nn.Module:
    """Return the model of a task; if a function makes it, its first parameters are a function of `seed`."""
    if isinstance(task.model, nn.Module):
        return task.model
    made = task.model

    def make() -> nn.Module:
        with samples.everything_seeded(seed):
            return _made(made)

    return repaired(make)


def labels(train: samples.Samples, workload: Trained) -> NDArray[np.generic]:
    """Return what a training set is dealt out by. Raises `ScenarioError` if it has no labels to go by."""
    if workload.partition == "iid":
        return np.zeros(len(train))
    found = train.labels()
    if found is None:
        problem = "must be iid: `train` has no labels (whole numbers in its last tensor, or `targets`)"
        raise ScenarioError(problem, key="workload.partition")
    return found


class Look(NamedTuple):
    """What is known of a task without computing: everything here is on the meta device. Nobody changes it."""

    model: nn.Module
    loss: Loss
    batch: Callable[[int], Any]
    """Of so many samples."""
    samples: int
    """In the training set."""

    held_out: Callable[[int], Any]
    """A batch of the test set."""

    metrics: Mapping[str, Metric]
    nbytes: int
    """That the data sets take in memory."""

    in_memory: bool
    """Whether `train` lies on the device as a whole."""


def look(workload: Trained) -> Look:
    """Return what is known of a workload's task without computing. Raises as `of` does."""
    return look_at(workload.code) if isinstance(workload, UserTask) else _look(of(workload, 0))


@functools.cache
@users.aside()
def look_at(code: Code) -> Look:
    """As `look`, of a user's task."""
    return users.guarded(code, _look, users.call(code, 0))


def _look(task: Task) -> Look:
    batch, held_out = (
        functools.cache(samples.meta(dataset, task.collate)) for dataset in (task.train, task.test)
    )
    nbytes = samples.nbytes(task.train) + samples.nbytes(task.test)
    tensors = samples.in_memory(task.train, task.collate)
    model = on_meta(task.model)
    return Look(model, task.loss, batch, len(task.train), held_out, task.metrics, nbytes, tensors)


def on_meta(model: nn.Module | Callable[[], nn.Module]) -> nn.Module:
    """Return a model, or what a function makes, without memory for its parameters."""
    if isinstance(model, nn.Module):  # a copy in which each tensor is replaced, wherever it is used
        copies = {
            id(weight): nn.Parameter(weight.to("meta"), weight.requires_grad) for weight in model.parameters()
        }
        try:
            return copy.deepcopy(model, copies | {id(each): each.to("meta") for each in model.buffers()})
        except Exception:  # of what cannot be copied, such as a lock: what needs the copy will be computed
            return model
    with models.seeded(torch.device("cpu"), 0):
        try:
            with torch.device("meta"):
                return repaired(_made, model)
        except ScenarioError:
            raise
        except Exception:  # RegNet computes its widths, others load their weights, or go by NumPy
            return on_meta(_made(model))  # to("meta") would untie weights


def _made(model: Callable[[], nn.Module]) -> nn.Module:
    made = model()
    if not isinstance(made, nn.Module):
        problem = f"must be a torch module, not {type(made).__name__}"
        raise ScenarioError(f"the task's model {problem}", key="workload.task")
    if (why := untrainable(made)) is not None:
        raise ScenarioError(f"the task has a model {why}", key="workload.task")
    return made


def cross_entropy(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The loss of what classifies: of logits (…, classes) and labels (…)."""
    x, y = batch
    return models.loss(model(x), y)


def outputs(model: Any, batch: tuple[Tensor, Tensor]) -> Any:
    """What the model that ships returns: its metrics have the loss, which `cross_entropy` would add again."""
    return model(batch[0])


def _held_out(logits: Tensor, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    return models.loss(logits, batch[1], reduction="sum"), batch[1].numel()


def accuracy(logits: Tensor, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """How many labels have the largest logit, and how many there are."""
    return (logits.argmax(-1) == batch[1]).sum(), batch[1].numel()


CLASSIFICATION: dict[str, Metric] = {"loss": _held_out, "accuracy": accuracy}
