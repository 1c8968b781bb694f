"""A model's layers, and where a cut into stages falls: what `lockstep model` prints."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lockstep import scenarios
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, ScenarioError, Workload
from lockstep.scenarios.loading import Check
from lockstep.scenarios.section import did_you_mean
from lockstep.scenarios.workload import Trained, UserTask
from lockstep.workloads import Sizes, sizes
from lockstep.workloads.cutting import By, Memory, cut
from lockstep.workloads.layers import Layer, kept, layers
from lockstep.workloads.sizes import OURS, TABLE

_SMALL = 10_000_000  # parameters of a task's model, with which its loss is tried: a second at most
_STATE = 2  # of each parameter there are two values: itself and its gradient


def table(source: str | Path, overrides: Sequence[str], stages: int | None, by: By | None) -> dict[str, Any]:
    """The layers of a scenario's workload, a shipped workload or a model; `lockstep.model` says more."""
    if stages is None and by is not None:
        problem = "needs --stages; where a scenario itself is cut is --set 'parallelism.cut={by: …}'"
        raise ScenarioError(problem, key="--by")
    scenario = _scenario(str(source), overrides, _plan if stages is None else None)
    workload, plan = scenario.workload, _plan(scenario) if stages is None else None
    its = sizes(workload)
    if isinstance(workload, UserTask) and its.parameters <= _SMALL:
        from lockstep.workloads import counting

        counting.try_loss(workload.code)
    if plan is None:
        try:
            found = layers(workload, stages or 1)
        except ScenarioError as error:
            if stages is not None or not isinstance(workload, UserTask):
                raise
            return _whole(str(source), workload, its, error.problem)
    else:
        found = layers(workload, len(plan.pieces), its.batch_size // plan.micro_batches)
    answer: dict[str, Any] = {
        "model": str(source),
        "parameters": its.parameters,
        "itemsize": its.itemsize,
        "batch_size": its.batch_size,
        "flops": sum(layer.flops for layer in found),
        **_work_and_depth(workload),
        "layers": [_layer(layer, its.itemsize) for layer in found],
    }

    def memory(_stage: int, start: int, stop: int) -> float:
        return its.itemsize * (
            _STATE * sum(layer.parameters for layer in found[start:stop])
            + its.batch_size * kept(found[start:stop])
        )

    if stages is not None:
        answer["by"] = by or "flops"
        bounds = _cut(found, stages, by or "flops", memory)
    elif plan is not None:
        answer["by"] = scenario.split.by
        stages, bounds = scenario.split.pipeline, [0, *(piece.layers.stop for piece in plan.pieces)]
    else:
        return answer
    answer["stages"] = []
    for piece, (start, stop) in enumerate(pairwise(bounds)):
        for row in answer["layers"][start:stop]:
            row["stage"] = piece % stages
        answer["stages"].append({
            "stage": piece % stages,
            "first": found[start].name,
            "last": found[stop - 1].name,
            "layers": stop - start,
            "parameters": sum(layer.parameters for layer in found[start:stop]),
            "flops": sum(layer.flops for layer in found[start:stop]),
            "activation_bytes": its.itemsize * found[stop - 1].output,
            "saved_bytes": its.itemsize * kept(found[start:stop]),
            "memory_bytes": memory(piece, start, stop),
        })  # fmt: skip
    return answer


def _whole(model: str, workload: UserTask, its: Sizes, why: str) -> dict[str, Any]:
    """A model that cannot be taken apart, nor has to be: what is known of all of it, and why that is so."""
    every: dict[str, Any] = dict.fromkeys(_layer(Layer("all", its.parameters, 0, 0, 0, 0, 0), 1))
    known = {"layer": "all", "parameters": its.parameters, "saved_bytes": its.kept / its.batch_size}
    return {
        "model": model,
        "parameters": its.parameters,
        "itemsize": its.itemsize,
        "batch_size": its.batch_size,
        "flops": (its.flops or 0.0) / its.batch_size,
        **_work_and_depth(workload),
        "layers": [every | known],
        "whole": f"{why}; so it cannot be split",
    }


def _plan(scenario: Scenario) -> Plan | None:
    """Of a model that is split."""
    return Plan.of(scenario) if scenario.split.pipeline > 1 else None


def _cut(found: Sequence[Layer], stages: int, by: By, memory: Memory) -> Sequence[int]:
    try:
        return cut(found, stages, by, memory=memory)
    except ScenarioError as error:  # more stages than layers: this is what asked for them
        raise ScenarioError(error.problem, key="--stages") from None


def _scenario(source: str, overrides: Sequence[str], check: Check | None) -> Scenario:
    if Path(source).is_file() or source.removesuffix(".yaml") in scenarios.shipped():
        return scenarios.load(source, overrides, check, alone=True)
    shelf = scenarios.shelf("workloads")
    if source in shelf:
        return scenarios.load("sizes-only", [f"workload={source}", *overrides], check, alone=True)
    models = _models()
    if source not in models:
        known = [*scenarios.shipped(), *shelf, *models]
        said = f"no scenario, workload or model is called {source[:60]!r}{did_you_mean(source, known)}"
        raise ScenarioError(f"{said}; give the name of one, or a scenario's file")
    dataset = "digits" if source in OURS else "cifar10"
    workload = f"workload={{dataset: {dataset}, model: {source}}}"
    return scenarios.load("sizes-only", [workload, *overrides], check, alone=True)


def _models() -> list[str]:
    """Of those that can be trained; none is loaded for it."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()[1:]
    return list(dict.fromkeys(line.split(",")[0] for line in lines))


def _work_and_depth(workload: Workload) -> dict[str, Any]:
    found = None
    if isinstance(workload, Trained):
        from lockstep.workloads.depth import depth

        found = depth(workload)
    if found is None:
        return {"work": None, "depth": None, "parallelism": None}
    work, steps = found
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
