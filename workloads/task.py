"""A task: a model, what it learns from, and its loss. Users write functions that return one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isclose, isfinite
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from lockstep.scenarios import ScenarioError

_NOTHING, _ALIKE = 1e-6, 1e-3  # a loss that says nothing, and how near a multiple is to be one
Loss = Callable[[Any, Any], Tensor]
Metric = Callable[[Any, Any], "Tensor | tuple[Tensor, int]"]


@dataclass(frozen=True)
class Task:
    """What a run learns (docs/your-model.md).

    `model`: a module, or a function that makes one: then sizes are known without memory for the parameters.
    Parameters that require gradients are trained; buffers are constants.
    `train`, `test`: data sets with a length and samples by index. A `TensorDataset` lies on the device.
    `loss(model, batch)`: the mean over the batch, a scalar.
    `metrics`: by name, functions of (what the model returned, batch), computed on `test`. One returns the
    values that are averaged, such as one for each sample, a scalar that is their mean over the batch, or a
    pair (sum, number). All are recorded with each snapshot, and `stop.target` can wait for any. `loss`
    replaces the held-out loss.
    `collate`: makes a batch of a list of samples; None: as torch's DataLoader does.
    """

    model: nn.Module | Callable[[], nn.Module]
    train: Any
    test: Any
    loss: Loss
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    collate: Callable[[list[Any]], Any] | None = None


def defined(function: Any) -> str:
    """Where a function of a task is, to be said behind what is wrong with it; nothing if it has no lines."""
    code = getattr(getattr(function, "func", function), "__code__", None)  # also of a functools.partial
    return f" ({code.co_filename}, line {code.co_firstlineno})" if code is not None else ""


def scalar(loss: Any, function: Loss) -> Tensor:
    """Return a loss. Raises `ScenarioError` unless it is a scalar that depends on what is trained.

    function: whose loss it is.
    """
    problem = None
    if not isinstance(loss, Tensor):
        problem = f"a tensor, not {type(loss).__name__}"
    elif loss.dim():
        problem = f"a scalar, the mean over the batch, not a tensor of shape {tuple(loss.shape)}"
    elif not loss.requires_grad:
        problem = "a tensor that depends on the model's parameters; this one requires no gradient"
    if problem is not None:
        raise ScenarioError(f"the task's loss must return {problem}{defined(function)}", key="workload.task")
    return loss  # type: ignore[no-any-return]


def require_mean(loss: Loss, one: float, two: float, three: float, again: float) -> None:
    """Raise `ScenarioError` for a loss that adds up, given that of a sample, of it twice and three times.

    again: that of a sample, last. What is not finite is no sum: gradients will tell.
    """
    if not all(map(isfinite, (one, two, three))) or abs(one) <= _NOTHING:
        return
    if not all(isclose(found, times * one, rel_tol=_ALIKE) for times, found in ((2, two), (3, three))):
        return
    problem = (
        "the task's loss must be the mean over the batch, and this one is a sum: of the same sample twice"
    )
    problem += " it is twice as large"
    if not isclose(one, again, rel_tol=_ALIKE):
        problem = (
            "the task's loss must be a function of the model and the batch, and this one keeps something: "
        )
        problem += f"of the same sample it is {one:.4g}, and later {again:.4g}"
    raise ScenarioError(f"{problem}{defined(loss)}", key="workload.task")


class _Asked(Exception):
    """Tells what a loss gives its model."""

    def __init__(self, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.given, self.named = given, named


def _ask(*given: Any, **named: Any) -> Any:
    raise _Asked(given, named)


def inputs(loss: Loss, batch: Any) -> Tensor:
    """Return what a loss gives its model, which is not called: one tensor. Raises ValueError if it is not."""
    try:
        loss(_ask, batch)
    except _Asked as asked:
        if len(asked.given) == 1 and not asked.named and isinstance(asked.given[0], Tensor):
            return asked.given[0]
        raise ValueError("the loss does not give the model one tensor") from None
    except AttributeError as error:  # of the stand-in for the model
        raise ValueError(f"the loss does not just call the model: {error}") from None
    raise ValueError("the loss does not call the model")


def lost(loss: Loss, batch: Any, output: Any) -> Tensor:
    """Return the loss where the model has returned `output`; it is not called again."""
    return loss(lambda *_, **__: output, batch)


def untrainable(model: nn.Module) -> str | None:
    """Why a model cannot be trained, in words; None: it can."""
    weights = trained(model).values()
    if not weights:
        return "without parameters that require gradients"
    if any(isinstance(weight, UninitializedParameter) for weight in weights):
        return "with a lazy layer; give it its number of inputs"
    others = sorted({str(weight.dtype).removeprefix("torch.") for weight in weights} - {"float32"})
    if others:
        return f"whose parameters are {others[0]}; must be float32 (workload.precision computes in 16 bits)"
    return None


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name, in the order of the flat vector; tied ones are there once."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
