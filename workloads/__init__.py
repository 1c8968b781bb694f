"""What is learned: data sets, models, problems, and how long a gradient takes."""

from lockstep.scenarios import Workload
from lockstep.scenarios import workload as described
from lockstep.workloads.base import Evaluation, Learner, Sizes, deterministic_threads
from lockstep.workloads.compute_time import ComputeTime
from lockstep.workloads.sizes import sizes

__all__ = ["ComputeTime", "Evaluation", "Learner", "Sizes", "build", "deterministic_threads", "sizes"]


def build(workload: Workload, workers: int, seed: int, device: str = "cpu") -> Learner:
    """Return what computes the workload's real gradients, for that many workers, on a torch device.

    Raises `ScenarioError` if the data cannot be had or shared out, or the model does not fit; `ValueError`
    for a workload of sizes only.
    """
    from lockstep.workloads.classifier import Classifier
    from lockstep.workloads.problems import Logistic, Quadratic

    match workload:
        case described.Data() | described.Transformer():
            return Classifier(workload, workers, seed, device)
        case described.Problem(problem="quadratic"):
            return Quadratic(workload, seed, device)
        case described.Problem():
            return Logistic(workload, workers, seed, device)
        case described.Sizes() | described.Graph():
            raise ValueError("a workload given by its parameter count has no gradients")
