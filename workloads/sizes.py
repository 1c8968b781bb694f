"""Sizes of a workload from its description: no data, and no memory for parameters."""

import csv
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.scenarios import ScenarioError, Workload
from lockstep.scenarios import workload as described
from lockstep.workloads.base import Sizes
from lockstep.workloads.forms import FORMS, Form, form

if TYPE_CHECKING:
    from lockstep.workloads.layers import Layer

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
LOGISTIC_SAMPLES, LOGISTIC_HELD_OUT = 2048, 512
EMBEDDING_SAMPLES, EMBEDDING_HELD_OUT = 16_384, 2048
TABLE = Path(__file__).with_name("models.csv")
OURS = ("mlp", "cnn")  # models of this package
COLUMNS = (
    *("model", "image", "parameters", "flops_per_sample", "flops_per_batch"),
    *("kept_per_sample", "kept_per_batch"),
)


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
            kept = (workload.layers or 1) * int(workload.activation or 0)
            return Sizes(workload.parameters, ITEMSIZE[workload.element], batch, None, flops, kept)
        case described.Graph():
            from lockstep.workloads.published import graph

            return _of_layers(graph(Path(workload.graph), batch), batch, None, None)
        case described.Problem(problem="quadratic"):  # subtract, multiply
            return Sizes(workload.dimension, 4, batch, None, 2.0 * workload.dimension, 4 * workload.dimension)
        case described.Problem():  # two products of the batch's matrix and a vector
            flops = 4.0 * batch * workload.features
            return Sizes(workload.dimension, 4, batch, known, flops, 4 * batch * workload.features)
        case described.Data():
            parameters, flops, kept = _model(workload.model, workload.dataset, batch)
            return Sizes(parameters, 4, batch, known, flops, kept)
        case described.UserTask():
            from lockstep.workloads import counting

            parameters, ((operations, nbytes),) = counting.of_task(workload.code, batch)
            return Sizes(parameters, 4, batch, known, float(operations), nbytes)
        case described.Transformer():
            from lockstep.workloads import counting

            layers = counting.layers(workload, batch)
            return _of_layers(layers, batch, known, sum(layer.flops for layer in layers) * batch)


def _of_layers(layers: "Sequence[Layer]", batch: int, known: int | None, flops: float | None) -> Sizes:
    from lockstep.workloads.layers import kept

    parameters = sum(layer.parameters for layer in layers)
    return Sizes(parameters, 4, batch, known, flops, round(4 * batch * kept(layers)))


def samples(workload: Workload) -> int | None:
    """Return how many samples there are in the training set; None: endless."""
    match workload:
        case described.Data() | described.Transformer() if workload.dataset is not None:
            return form(workload).train
        case described.UserTask():
            from lockstep.workloads import tasks

            return tasks.look(workload).samples
        case described.Problem(problem="logistic"):
            return LOGISTIC_SAMPLES
        case described.Problem(problem="embedding"):
            return EMBEDDING_SAMPLES
        case _:
            return None


@functools.cache
def _model(name: str, dataset: str, batch: int) -> tuple[int, float, int]:
    """Return parameters, the FLOPs of one gradient (a multiply-add is two), and the bytes that it keeps."""
    form = FORMS[dataset]
    counted = _table().get((name, image(form)))
    if counted is not None and (batch > 1 or name in OURS):  # others may not normalise a batch of one
        parameters, flops, always, kept, kept_always = counted
        return parameters, float(flops * batch + always), kept * batch + kept_always
    from lockstep.workloads import counting

    try:
        parameters, ((operations, nbytes),) = counting.count(name, form, batch)
    except counting.MISFITS as error:
        problem = f"{name} cannot be trained on {dataset} in batches of {batch}: {error}"
        raise ScenarioError(problem, key="workload.model") from error
    return parameters, float(operations), nbytes


@functools.cache
def _table() -> dict[tuple[str, str], tuple[int, ...]]:
    """What `workloads.counting` has counted of models: the columns but for the first two."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return {(name, image): tuple(map(int, counted)) for name, image, *counted in rows}


def image(form: Form) -> str:
    """The shape of a data set's images, as the table has it: 3x32x32."""
    return "x".join(map(str, form.shape))
