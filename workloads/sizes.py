"""Sizes of a workload from its description: no data, and no memory for parameters."""

import csv
import functools
from pathlib import Path

from lockstep.scenarios import ScenarioError, Workload
from lockstep.scenarios import workload as described
from lockstep.workloads.base import Sizes
from lockstep.workloads.forms import FORMS, Form

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
LOGISTIC_SAMPLES, LOGISTIC_HELD_OUT = 2048, 512
TABLE = Path(__file__).with_name("models.csv")
OURS = ("mlp", "cnn")  # models of this package
COLUMNS = ("model", "image", "parameters", "flops_per_sample", "flops_per_batch")


def sizes(workload: Workload) -> Sizes:
    """Return the sizes of a workload; torch is loaded only to count a model that is not in the table.

    Raises `ScenarioError`, with the key, for a model that does not exist, or cannot be trained on the data
    set's images, and for a mini-batch that is larger than the training set.
    """
    batch, known = workload.batch_size, samples(workload)
    if known is not None and batch > known:
        problem = f"must be at most {known}, as there are samples in the training set, not {batch}"
        raise ScenarioError(problem, key="workload.batch_size")
    match workload:
        case described.Sizes():
            flops = None if workload.flops is None else workload.flops * batch
            return Sizes(workload.parameters, ITEMSIZE[workload.dtype], batch, None, flops)
        case described.Problem(problem="quadratic"):  # subtract, multiply
            return Sizes(workload.dimension, 4, batch, None, 2.0 * workload.dimension)
        case described.Problem():  # two products of the batch's matrix and a vector
            return Sizes(workload.dimension, 4, batch, known, 4.0 * batch * workload.features)
        case described.Data():
            parameters, flops = _model(workload.model, workload.dataset, batch)
            return Sizes(parameters, 4, batch, known, flops)


def samples(workload: Workload) -> int | None:
    """Return how many samples there are in the training set; None: endless."""
    match workload:
        case described.Data():
            return FORMS[workload.dataset].train
        case described.Problem(problem="logistic"):
            return LOGISTIC_SAMPLES
        case _:
            return None


@functools.cache
def _model(name: str, dataset: str, batch: int) -> tuple[int, float]:
    """Return parameters and the FLOPs of one gradient (a multiply-add is two)."""
    form = FORMS[dataset]
    counted = _table().get((name, image(form)))
    if counted is not None and (batch > 1 or name in OURS):  # others may not normalise a batch of one
        parameters, each, always = counted
        return parameters, float(each * batch + always)
    from lockstep.workloads import counting

    try:
        parameters, (flops,) = counting.count(name, form, batch)
    except counting.MISFITS as error:
        problem = f"{name} cannot be trained on {dataset} in batches of {batch}: {error}"
        raise ScenarioError(problem, key="workload.model") from error
    return parameters, float(flops)


@functools.cache
def _table() -> dict[tuple[str, str], tuple[int, int, int]]:
    """What `workloads.counting` has counted: parameters, FLOPs a sample and FLOPs a batch of models."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return {(name, image): (int(n), int(each), int(always)) for name, image, n, each, always in rows}


def image(form: Form) -> str:
    """The shape of a data set's images, as the table has it: 3x32x32."""
    return "x".join(map(str, form.shape))
