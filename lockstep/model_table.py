"""A model's layers, and where a cut into stages falls: what `lockstep model` prints."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import lockstep
from lockstep import scenarios
from lockstep.scenarios import ScenarioError, Workload
from lockstep.scenarios.section import did_you_mean
from lockstep.scenarios.workload import Trained
from lockstep.workloads import sizes
from lockstep.workloads.cutting import By, cut
from lockstep.workloads.layers import Layer, kept, layers
from lockstep.workloads.sizes import OURS, TABLE

_STATE = 2  # of each parameter there are two values: itself and its gradient


def table(source: str | Path, overrides: Sequence[str], stages: int | None, by: By) -> dict[str, Any]:
    """The layers of a scenario's workload, a shipped workload or a model; `lockstep.model` says more."""
    workload = _scenario(str(source), overrides).workload
    its, found = sizes(workload), layers(workload, stages or 1)
    answer: dict[str, Any] = {
        "model": str(source),
        "parameters": its.parameters,
        "itemsize": its.itemsize,
        "batch_size": its.batch_size,
        "flops": sum(layer.flops for layer in found),
        **_work_and_depth(workload),
        "layers": [_layer(layer, its.itemsize) for layer in found],
    }
    if stages is None:
        return answer

    def memory(_stage: int, start: int, stop: int) -> float:
        return its.itemsize * (
            _STATE * sum(layer.parameters for layer in found[start:stop])
            + its.batch_size * kept(found[start:stop])
        )

    bounds = cut(found, stages, by, memory=memory)
    for stage, (start, stop) in enumerate(pairwise(bounds)):
        for row in answer["layers"][start:stop]:
            row["stage"] = stage
    answer["by"] = by
    answer["stages"] = [
        {
            "stage": stage,
            "first": found[start].name,
            "last": found[stop - 1].name,
            "layers": stop - start,
            "parameters": sum(layer.parameters for layer in found[start:stop]),
            "flops": sum(layer.flops for layer in found[start:stop]),
            "activation_bytes": its.itemsize * found[stop - 1].output,
            "saved_bytes": its.itemsize * kept(found[start:stop]),
            "memory_bytes": memory(stage, start, stop),
        }
        for stage, (start, stop) in enumerate(pairwise(bounds))
    ]
    return answer


def _scenario(source: str, overrides: Sequence[str]) -> "lockstep.Scenario":
    if Path(source).is_file() or source.removesuffix(".yaml") in scenarios.shipped():
        return scenarios.load(source, overrides, alone=True)
    shelf = scenarios.shelf("workloads")
    if source in shelf:
        return scenarios.load("sizes-only", [f"workload={source}", *overrides], alone=True)
    models = _models()
    if source not in models:
        known = [*scenarios.shipped(), *shelf, *models]
        said = f"no scenario, workload or model is called {source[:60]!r}{did_you_mean(source, known)}"
        raise ScenarioError(f"{said}; give the name of one, or a scenario's file")
    dataset = "digits" if source in OURS else "cifar10"
    workload = f"workload={{dataset: {dataset}, model: {source}}}"
    return scenarios.load("sizes-only", [workload, *overrides], alone=True)


def _models() -> list[str]:
    """Of those that can be trained; none is loaded for it."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()[1:]
    return list(dict.fromkeys(line.split(",")[0] for line in lines))


def _work_and_depth(workload: Workload) -> dict[str, Any]:
    if not isinstance(workload, Trained):
        return {"work": None, "depth": None, "parallelism": None}
    from lockstep.workloads.depth import depth

    work, steps = depth(workload)
    return {"work": work, "depth": steps, "parallelism": work / steps}


def _layer(layer: Layer, itemsize: int) -> dict[str, Any]:
    return {
        "layer": layer.name,
        "parameters": layer.parameters,
        "forward_flops": layer.forward_flops,
        "backward_flops": layer.backward_flops,
        "activation_bytes": itemsize * layer.output,
        "saved_bytes": itemsize * layer.saved,
        "forward_s": layer.forward_s,
        "backward_s": layer.backward_s,
    }
