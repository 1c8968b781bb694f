"""A model as a sequence of layers: what each computes, sends on and keeps. Only a real model loads torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.scenarios import ScenarioError, Workload
from lockstep.scenarios import workload as described
from lockstep.workloads.sizes import sizes


@dataclass(frozen=True)
class Layer:
    """What is between two places where a model can be cut; the flat parameters have it after the one before.

    Elements are as large as the model's parameters are. All but `parameters` and the seconds are of one
    sample, whose share of what a mini-batch needs only once is counted too.
    """

    name: str
    parameters: int
    forward_flops: float  # a multiply-add is two; products of matrices and convolutions alone
    backward_flops: float  # of the inputs' gradient, but in the first layer, and the weights'
    output: float  # elements of the activation behind it, which goes on to the next layer; of the last: 0
    saved: float  # elements that it keeps from its forward to its backward pass, its input among them
    shared: float  # how many of those the layer before keeps anyway
    modules: tuple[str, ...] = ()  # of torch: those in it that have none inside
    tied: str = ""  # the parameter that keeps it whole, because it is used at two places
    forward_s: float | None = (
        None  # seconds that a whole mini-batch has been seen to take; None: nobody looked
    )
    backward_s: float | None = None

    @property
    def flops(self) -> float:
        """Of both passes, for one sample."""
        return self.forward_flops + self.backward_flops

    @property
    def seconds(self) -> float | None:
        """Of both passes, for a mini-batch; None where nobody looked."""
        if self.forward_s is None or self.backward_s is None:
            return None
        return self.forward_s + self.backward_s


def kept(layers: Sequence[Layer]) -> float:
    """Elements a sample that consecutive layers keep from a forward pass to its backward pass.

    What two of them keep is there once. With recomputation it is only what comes in: `output` of the layer
    before.
    """
    return sum(layer.saved for layer in layers) - sum(layer.shared for layer in layers[1:])


def layers(workload: Workload, pipeline: int = 1, samples: int | None = None) -> tuple[Layer, ...]:
    """Return the layers of a workload, computed with `samples` at once (a micro-batch; None: a mini-batch).

    Sizes only are `workload.layers` equal ones, as many as `pipeline` if that is not given: parameters are
    shared out as evenly as can be, a third of the work is forward, and each keeps what comes in. Where
    `workload.flops` is not given, each parameter is used once a sample: 2 FLOPs forward and 4 backward. A
    problem is one layer; it keeps the features of its samples, or the distance from the optimum. The work of
    a profile's layers is not known, only seconds.

    Raises `ScenarioError` for a model that does not exist or does not fit, as `sizes` does.
    """
    match workload:
        case described.Sizes():
            return _uniform(workload, pipeline)
        case described.Graph():
            from lockstep.workloads import published

            return published.graph(Path(workload.graph), workload.batch_size)
        case described.Problem():
            flops = (sizes(workload).flops or 0.0) / workload.batch_size
            quadratic = workload.problem == "quadratic"
            saved = workload.dimension / workload.batch_size if quadratic else float(workload.features)
            return (Layer("all", workload.dimension, flops / 2, flops / 2, 0.0, saved, 0.0),)
        case described.Data() | described.Transformer() | described.UserTask():
            return _counted(workload, workload.batch_size if samples is None else samples)


def _counted(workload: described.Trained, samples: int) -> tuple[Layer, ...]:
    from lockstep.workloads import counting, published

    try:
        found = counting.layers(workload, samples)
    except counting.MISFITS as error:
        name, where = workload.called
        if isinstance(workload, described.UserTask):
            problem = f"{name} cannot be taken apart into layers: {' '.join(str(error).split())}"
            raise ScenarioError(problem, key="workload.task") from error
        problem = f"{name} cannot be trained{where} in batches of {samples}: {error}"
        raise ScenarioError(problem, key="workload.model") from error
    if workload.layer_times is None:
        return found
    return published.timed(found, Path(workload.layer_times), workload.model_dump())


def _uniform(workload: described.Sizes, pipeline: int) -> tuple[Layer, ...]:
    count = workload.layers or pipeline
    its = sizes(workload)
    flops = 6.0 * its.parameters if workload.flops is None else workload.flops
    activation = (workload.activation or 0.0) / (its.itemsize * its.batch_size)
    fewest, more = divmod(its.parameters, count)
    return tuple(
        Layer(
            str(number),
            fewest + (number < more),
            flops / count / 3,
            flops / count * 2 / 3,
            activation if number < count - 1 else 0.0,
            activation,
            0.0,
        )
        for number in range(count)
    )
