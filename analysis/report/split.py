"""How a scenario splits its model, in words."""

from collections.abc import Collection, Iterator

from lockstep.analysis.table import keys
from lockstep.analysis.words import count, of_replica
from lockstep.analysis.written import said
from lockstep.scenarios import Scenario
from lockstep.strategies.registry import STRATEGIES


def split(scenario: Scenario, varied: Collection[str]) -> str:
    """ "2 replicas of 4 stages × 2 parts, 16 micro-batches, …"; nothing where nobody asked for a split.

    varied: the keys that are not the same in all runs. Of them nothing is said here.
    """
    if scenario.parallelism is None and not any(key.startswith("parallelism.") for key in varied):
        return ""
    return ", ".join(_parts(scenario, {key.removeprefix("parallelism.") for key in varied}))


def _parts(scenario: Scenario, varied: set[str]) -> Iterator[str]:
    its = scenario.split
    cut = its.pipeline > 1 or "pipeline" in varied
    shared = its.tensor > 1 or "tensor" in varied
    if not cut and not shared:
        yield "not cut"
    elif varied.isdisjoint({"pipeline", "tensor", "redundancy"}):
        its_devices = of_replica(its.pipeline, its.parts, its.redundancy)
        alike = "cluster.workers" not in varied
        yield (
            f"{count(scenario.replicas, 'replica')} of {its_devices}"
            if alike
            else f"replicas of {its_devices}"
        )
    elif "pipeline" not in varied:
        yield f"replicas of {count(its.pipeline, 'stage')}"
    elif not {"tensor", "redundancy"} & varied and shared:
        yield f"stages of {of_replica(1, its.parts, its.redundancy)}"
    if its.sequence and "sequence" not in varied:
        yield "sequences cut too"
    if shared and its.convolutions != "all-reduce" and "convolutions" not in varied:
        yield f"convolutions by {its.convolutions}"
    own = STRATEGIES.get(scenario.strategy.name) if "strategy.name" not in varied else None
    if "micro_batches" not in varied:
        micro = its.micro_batches or (own and own.micro_batches) or its.pipeline
        unknown = its.micro_batches is None and not {"pipeline", "strategy.name"}.isdisjoint(varied)
        yield "micro-batches by default" if unknown else count(micro, "micro-batch")
    if cut and "order" not in varied:
        yield "an order of the strategy's own" if own and own.own_passes else f"order {its.order}"
    if its.chunks > 1 and "chunks" not in varied:
        yield f"{its.chunks} chunks a stage"
    if its.recompute and "recompute" not in varied:
        yield "forward passes computed again"
    written = keys(scenario.model_copy(update={"parallelism": its}))
    for key in (*["cut"] * cut, *["axes"] * (cut or shared)):
        if key not in varied:
            yield f"{key} {said(written[f'parallelism.{key}'], f'parallelism.{key}')}"
