"""Sizes of a workload from its description: no data, and no memory for parameters."""

import functools

from scenarios import ScenarioError, Workload
from scenarios import workload as forms
from workloads.base import Sizes

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
LOGISTIC_SAMPLES = 2048


def sizes(workload: Workload) -> Sizes:
    """Return the sizes of a workload; torch is loaded only to measure a model.

    Raises `ScenarioError` (key ``workload.model``) for a model that does not exist, or cannot be trained on
    the data set's images.
    """
    batch = workload.batch_size
    match workload:
        case forms.Sizes():
            flops = None if workload.flops is None else workload.flops * batch
            return Sizes(workload.parameters, ITEMSIZE[workload.dtype], batch, None, flops)
        case forms.Problem(problem="quadratic"):  # subtract, multiply
            return Sizes(workload.dimension, 4, batch, None, 2.0 * workload.dimension)
        case forms.Problem():  # two products of the batch's matrix and a vector
            return Sizes(workload.dimension, 4, batch, LOGISTIC_SAMPLES, 4.0 * batch * workload.features)
        case forms.Data():
            parameters, samples, flops = _measure(workload.model, workload.dataset, batch)
            return Sizes(parameters, 4, batch, samples, flops)


@functools.cache
def _measure(name: str, dataset: str, batch: int) -> tuple[int, int, float]:
    """Return parameters, training samples and the FLOPs of one gradient (a multiply-add is two)."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from workloads import datasets, models

    form = datasets.FORMS[dataset]
    build = functools.partial(models.build, name, form.shape, form.classes, seed=0)
    try:
        try:
            with torch.device("meta"):
                model = build()
        except NotImplementedError:  # RegNet computes its widths with tensors
            model = build().to("meta")
        with FlopCounterMode(display=False) as counter, models.seeded(torch.device("cpu"), 0):
            model(torch.empty(batch, *form.shape, device="meta")).sum().backward()
    except (RuntimeError, ValueError, AssertionError) as error:
        problem = f"{name} cannot be trained on {dataset} in batches of {batch}: {error}"
        raise ScenarioError(problem, key="workload.model") from error
    return sum(p.numel() for p in model.parameters()), form.train, float(counter.get_total_flops())
