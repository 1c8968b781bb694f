"""What is learned: data sets, models, problems, and how long a gradient takes."""

from typing import TYPE_CHECKING

from lockstep.scenarios import Workload
from lockstep.scenarios import workload as described
from lockstep.workloads.base import Evaluation, Learner, Reader, Sizes, deterministic_threads, learning
from lockstep.workloads.compute_time import ComputeTime
from lockstep.workloads.sizes import sizes

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "ComputeTime",
    "Evaluation",
    "Learner",
    "Reader",
    "Sizes",
    "build",
    "deterministic_threads",
    "first_parameters",
    "learning",
    "modules",
    "require_importable",
    "sizes",
    "try_metrics",
]


def build(workload: Workload, workers: int, seed: int, device: str = "cpu") -> Learner:
    """Return what computes the workload's real gradients, for that many workers, on a torch device.

    Raises `ScenarioError` if the data cannot be had or shared out, or the model does not fit; `ValueError`
    for a workload of sizes only.
    """
    match workload:
        case described.UserTask():
            from lockstep.workloads.guarded import Guarded

            return Guarded(workload, workers, seed, device)
        case described.Data() | described.Transformer():
            from lockstep.workloads.classifier import Classifier

            return Classifier(workload, workers, seed, device)
        case described.Problem():
            from lockstep.workloads.embedding import Embedding
            from lockstep.workloads.problems import Logistic, Quadratic

            if workload.problem == "embedding":
                return Embedding(workload, workers, seed, device)
            if workload.problem == "quadratic":
                return Quadratic(workload, seed, device)
            return Logistic(workload, workers, seed, device)
        case described.Sizes() | described.Graph():
            raise ValueError("a workload given by its parameter count has no gradients")


def first_parameters(workload: Workload, seed: int) -> "Tensor":
    """Return the first parameters of what `build` returns, on the CPU, without the data that it learns.

    A user's function, which makes both, makes data sets too. Raises `ScenarioError` as `build` does.
    """
    match workload:
        case described.UserTask():
            from lockstep.workloads import classifier, users

            return users.guarded(workload.code, classifier.first_parameters, workload, seed)
        case described.Data() | described.Transformer():
            from lockstep.workloads import classifier

            return classifier.first_parameters(workload, seed)
        case described.Problem(problem="embedding"):
            from lockstep.workloads import embedding

            return embedding.first_parameters(workload.dimension, seed)
        case _:
            import torch

            return torch.zeros(sizes(workload).parameters)


def require_importable(workload: Workload) -> None:
    """Raise `ScenarioError` if other processes cannot import a user's task."""
    if isinstance(workload, described.UserTask):
        from lockstep.workloads import users

        users.require_importable(workload.code)


def try_metrics(workload: Workload) -> None:
    """Try the metrics of a user's task. Raises `ScenarioError` as `counting.try_metrics` does."""
    if isinstance(workload, described.UserTask) and workload.learns:
        from lockstep.workloads import counting

        counting.try_metrics(workload.code)


def modules(workload: Workload, in_layers: bool = False) -> list[str]:
    """What a process imports to `build` the workload's learner and to compute with it, or with its layers."""
    match workload:
        case described.Data() | described.Transformer() | described.UserTask():
            learner = ["lockstep.workloads.classifier", "torch.utils.flop_counter"]
            small = isinstance(workload, described.Data) and workload.model in ("mlp", "cnn")
            # layers, and most other models, are looked at on the meta device, which imports it in a second
            return learner if small and not in_layers else [*learner, "torch._dynamo"]
        case described.Problem():
            return ["lockstep.workloads.problems", "lockstep.workloads.embedding"]
        case _:
            return []
