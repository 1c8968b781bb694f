"""A learner of a user's own task: what their code raises is said in a line, with where it was."""

from functools import partial
from typing import Any

from torch import Tensor

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


class Guarded(Classifier):
    """As the one without; raises `ScenarioError`."""

    def __init__(self, workload: UserTask, *given: Any) -> None:
        self.code = workload.code
        users.guarded(self.code, super().__init__, workload, *given)

    def batch(self, worker: int, step: int, number: int = 0, parts: int = 1) -> Any:  # noqa: D102
        return users.guarded(self.code, super().batch, worker, step, number, parts)

    def gradient(self, parameters: Tensor, worker: int, step: int, ready: Ready | None = None) -> Tensor:  # noqa: D102
        return users.guarded(self.code, super().gradient, parameters, worker, step, ready)

    def evaluate(self, parameters: Tensor) -> Evaluation:  # noqa: D102
        return users.guarded(self.code, super().evaluate, parameters)
