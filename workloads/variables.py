"""What a model's parameters consist of: its variables, one after the other in the flat vector."""

from lockstep.scenarios import Workload
from lockstep.scenarios import workload as described
from lockstep.workloads.layers import layers


def variables(workload: Workload) -> tuple[int, ...]:
    """Return the elements of each variable: of a model the tensors, each weight and each bias; of sizes and
    of a profile the layers that have parameters; of a problem all."""
    if isinstance(workload, described.Trained):
        from lockstep.workloads import tasks
        from lockstep.workloads.task import trained

        return tuple(weight.numel() for weight in trained(tasks.look(workload).model).values())
    return tuple(layer.parameters for layer in layers(workload) if layer.parameters)
