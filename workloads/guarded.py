"""A learner of a user's own task: what their code raises is said in a line, with where it was."""

from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.code import Code
from lockstep.scenarios.workload import UserTask
from lockstep.workloads import users
from lockstep.workloads.base import Evaluation, Ready
from lockstep.workloads.classifier import Classifier


class GuardedPart:
    """What a device computes of a user's model (segments.Segment): its methods raise `ScenarioError`, too."""

    def __init__(self, code: Code, segment: Any) -> None:
        self._code, self._segment = code, segment

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._segment, name)
        return partial(users.guarded, self._code, found) if callable(found) else found


class NotFinite(ScenarioError):
    """A gradient that is not finite, and not because training diverged."""


class Guarded(Classifier):
    """As the one without; raises `ScenarioError`, `NotFinite` with the worker and the step."""

    def __init__(self, workload: UserTask, *given: Any) -> None:
        self.code, self._looked, self._fp16 = workload.code, False, workload.precision == "fp16"
        users.guarded(self.code, super().__init__, workload, *given)

    def batch(self, worker: int, step: int, number: int = 0, parts: int = 1) -> Any:  # noqa: D102
        return users.guarded(self.code, super().batch, worker, step, number, parts)

    def gradient(self, parameters: Tensor, worker: int, step: int, ready: Ready | None = None) -> Tensor:  # noqa: D102
        found = users.guarded(self.code, super().gradient, parameters, worker, step, ready, on="train")
        # on the CPU alone: elsewhere to look would be to wait
        if self.device.type != "cpu" or self._looked or self._is_fine(found, step):
            return found
        self._looked = True  # once, as it takes as long as a gradient
        self._look(parameters, worker, step)
        return found

    def _is_fine(self, gradient: Tensor, step: int) -> bool:
        """Whether the loss is finite; of a first gradient, that too."""
        return isfinite(self.loss) and bool(step or gradient.isfinite().all())

    def _look(self, parameters: Tensor, worker: int, step: int) -> None:
        """Raise `NotFinite` where nan is the data's, or there before anything is learned."""
        first, where = self.initial(), f"mini-batch {step} of worker {worker}"
        unlearned = torch.allclose(parameters, first, 0.0, 0.0, equal_nan=True)
        task, problem = self.code.task, None
        has_nan = any(map(_has_nan, tree_leaves(self.batch(worker, step))))
        if unlearned and not first.isfinite().all():
            problem = f"the first parameters of {task} are not finite: its model begins with nan or infinity"
        elif has_nan and (unlearned or not self._is_finite_at(first, worker, step)):
            problem = f"{where} has nan: look for gaps in the `train` of {task}"
        elif unlearned:
            problem = (
                f"the loss of {where}, or its gradient, is not finite before anything is learned: look for "
                f"infinite values in the `train` of {task}, and at its loss"
            )
            if self._fp16:
                problem += "; float16 has no number above 65,504, bf16 has"
        if problem is not None:
            raise NotFinite(problem, key="workload.task")

    def _is_finite_at(self, parameters: Tensor, worker: int, step: int) -> bool:
        """Whether the loss of a mini-batch is, though it has nan: they may be masked."""
        loss = self._loss
        users.guarded(self.code, super().gradient, parameters, worker, step, None, on="train")
        found, self._loss = isfinite(self.loss), loss
        return found

    def evaluate(self, parameters: Tensor) -> Evaluation:  # noqa: D102
        return users.guarded(self.code, super().evaluate, parameters, on="test")


def _has_nan(value: Any) -> bool:
    return isinstance(value, Tensor) and bool(value.isnan().any())
