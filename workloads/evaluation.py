"""How well a model does on a task's test set."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import nan
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.scenarios import ScenarioError
from lockstep.workloads.base import Evaluation
from lockstep.workloads.samples import CHUNK, Samples, everything_seeded
from lockstep.workloads.task import Loss, Metric, defined, require_mean


def evaluate(loss: Loss, metrics: Mapping[str, Metric], module: nn.Module, test: Samples) -> Evaluation:
    """Return the means of the loss and of each metric over all samples; nan of what counts none."""
    sums: dict[str, list[float]] = {}
    for start in range(0, len(test), CHUNK):
        batch, count = test.range(start, start + CHUNK), min(CHUNK, len(test) - start)
        for name, value in measured(loss, metrics, module, batch).items():
            total, number = _summed(value, count)
            both = sums.setdefault(name, [0.0, 0])
            both[0], both[1] = both[0] + total, both[1] + number
    means = {name: total / number if number else nan for name, (total, number) in sums.items()}
    return Evaluation(means.pop("loss"), means.pop("accuracy", None), means)


def measured(loss: Loss, metrics: Mapping[str, Metric], module: nn.Module, batch: Any) -> dict[str, Any]:
    """Return what the loss and each metric say of a batch."""
    outputs: list[Any] = []
    hook = module.register_forward_hook(lambda _module, _given, output: outputs.append(output))
    try:
        found: dict[str, Any] = {"loss": loss(module, batch)}
        if metrics and not outputs:
            problem = "the task's loss must call the model itself, model(x), and not one of its methods"
            problem += f": metrics are of what the model returns{defined(loss)}"
            raise ScenarioError(problem, key="workload.task")
        return found | {name: metric(outputs[-1], batch) for name, metric in metrics.items()}
    finally:
        hook.remove()


def try_loss(loss: Loss, model: Callable[[], nn.Module], train: Samples, device: torch.device) -> None:
    """Raise `ScenarioError` for a loss that is no mean, or changes the model's parameters.

    One that wants other batches is not asked.

    model: gives it in evaluation mode, with the buffers that it was made with.
    """
    first, found, changed = np.zeros(1, np.int64), list[float](), False
    with suppress(Exception), torch.no_grad():  # gradients will tell
        for times in (1, 2, 3, 1):
            batch, module = train.batch(first.repeat(times), lambda place: 0), model()
            before = _state(module)
            with everything_seeded(0, device):
                found.append(float(loss(module, batch)))
            changed = changed or _state(module) != before
    if changed:
        problem = "the task's model or loss writes to the model's parameters, which only the strategy may do"
        problem += f" (an nn.Embedding with max_norm does so, too){defined(loss)}"
        raise ScenarioError(problem, key="workload.task")
    if len(found) == 4:
        require_mean(loss, *found)


def _state(module: nn.Module) -> list[tuple[int, str]]:
    """Of each parameter that is trained how often it was written to, and what its values come to, or nan.

    Nothing where they do not say.
    """
    its = [each for each in module.parameters() if each.requires_grad]
    with suppress(Exception):
        return [(each._version, float(each.sum(dtype=torch.float64)).hex()) for each in its]
    return []


def _summed(value: Any, samples: int) -> tuple[float, int]:
    if isinstance(value, tuple):
        return float(value[0]), value[1]
    if isinstance(value, Tensor) and value.dim():
        return float(value.double().sum()), value.numel()
    return float(value) * samples, samples
