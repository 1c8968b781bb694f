"""A learner of a user's own task: what their code raises is said in a line, with where it was."""

from typing import Any

from torch import Tensor

from lockstep.scenarios.workload import UserTask
from lockstep.workloads import users
from lockstep.workloads.base import Evaluation, Ready
from lockstep.workloads.classifier import Classifier


class Guarded(Classifier):
    """As the one without; raises `ScenarioError`."""

    def __init__(self, workload: UserTask, *given: Any) -> None:
        self._code = workload.code
        users.guarded(self._code, super().__init__, workload, *given)

    def gradient(self, parameters: Tensor, worker: int, step: int, ready: Ready | None = None) -> Tensor:  # noqa: D102
        return users.guarded(self._code, super().gradient, parameters, worker, step, ready)

    def evaluate(self, parameters: Tensor) -> Evaluation:  # noqa: D102
        return users.guarded(self._code, super().evaluate, parameters)
