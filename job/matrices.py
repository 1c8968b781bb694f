"""Where the weights of fully connected layers lie in the flat vector: their gradients are outer products."""

from torch import nn

from lockstep.scenarios.workload import Data
from lockstep.strategies.outer import Matrix
from lockstep.workloads import tasks
from lockstep.workloads.task import trained


def matrices(workload: Data) -> list[Matrix]:
    """Those of a classifier of images: each makes one product a sample, which bounds its gradient's rank."""
    model = tasks.look(workload).model
    weights = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    found, start = [], 0
    for weight in trained(model).values():
        if id(weight) in weights:
            rows, columns = weight.shape
            found.append(Matrix(slice(start, start + weight.numel()), rows, columns, workload.batch_size))
        start += weight.numel()
    return found
