"""How a scenario splits its model, in words."""

from collections.abc import Collection, Iterator

from lockstep.analysis.table import keys
from lockstep.analysis.words import count
from lockstep.analysis.written import said
from lockstep.scenarios import Scenario
from lockstep.strategies.registry import STRATEGIES


def split(scenario: Scenario, varied: Collection[str]) -> str:
    """ "2 replicas of 4 stages, 16 micro-batches, order 1f1b, …"; nothing where nobody asked for a split.

    varied: the keys that are not the same in all runs. Of them nothing is said here.
    """
    if scenario.parallelism is None and not any(key.startswith("parallelism.") for key in varied):
        return ""
    return ", ".join(_parts(scenario, {key.removeprefix("parallelism.") for key in varied}))


def _parts(scenario: Scenario, varied: Collection[str]) -> Iterator[str]:
    its = scenario.split
    cut = its.pipeline > 1 or "pipeline" in varied
    if not cut:
        yield "not cut"
    elif "pipeline" not in varied:
        stages = count(its.pipeline, "stage")
        alike = "cluster.workers" not in varied
        yield f"{count(scenario.replicas, 'replica')} of {stages}" if alike else f"replicas of {stages}"
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
    for key in ("cut", "axes") if cut else ():
        if key not in varied:
            yield f"{key} {said(written[f'parallelism.{key}'], f'parallelism.{key}')}"
