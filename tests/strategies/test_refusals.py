"""What may be put together of a worker loop, a synchronisation model and a correction: every combination.

The names below say what each factor asks and bears, independently of the code. They were read off the code
before its factors declared anything by themselves, and gave the same answer for all 511,758 combinations of
a name and three factors. One is refused since: see `fits`.
"""

from itertools import product
from typing import Any

import pytest

from lockstep.strategies import STRATEGIES, StrategyError
from lockstep.strategies.optimizers import WITH_SQUARES
from lockstep.strategies.registry import composed

LOOP, MODEL, CORRECTION = "worker_loop", "consistency", "correction"
SERVED = [
    "synchronous", "backup-workers", "k-sync", "k-batch-sync", "model-averaging", "easgd", "bmuf", "fedavg",
    "fedprox", "asynchronous", "downpour", "downpour-blocking", "agn", "adag", "adag-distance", "aeasgd",
    "eamsgd", "k-async", "k-batch-async", "soft-sync", "staleness-aware", "dynsgd", "dc-asgd", "ssp",
    "ssp-blocking", "bounded-delay",
]  # fmt: skip
PAIRS = {"k-sync", "k-batch-sync", "easgd", "bmuf", "fedavg", "fedprox"}  # go with each other only
PULLS_OR_RUNS_AHEAD = {
    "downpour", "downpour-blocking", "adag-distance", "aeasgd", "eamsgd", "dynsgd", "ssp", "bounded-delay",
}  # fmt: skip
SERVES_AT_ANY_TIME = {
    "asynchronous", "downpour", "downpour-blocking", "agn", "adag", "adag-distance", "aeasgd", "eamsgd",
    "k-batch-async", "soft-sync", "staleness-aware", "dynsgd", "dc-asgd", "ssp", "ssp-blocking",
    "bounded-delay",
}  # fmt: skip
TELLS_ITS_CLOCK = {"ssp", "ssp-blocking"}
HOLDS_BACK = {"ssp", "ssp-blocking", "bounded-delay"}
AVERAGES_ALONG = {"synchronous", "model-averaging", "easgd", "bmuf"}
AVERAGES = {"model-averaging", "bmuf"}  # worker loops
PUSHES_DELTAS = {
    "model-averaging", "easgd", "bmuf", "fedavg", "fedprox", "downpour", "downpour-blocking", "agn", "adag",
    "adag-distance", "aeasgd", "eamsgd", "dynsgd", "ssp",
}  # fmt: skip


def refused(name: str, values: dict[str, Any]) -> bool:
    try:
        composed(name, values)
    except StrategyError:
        return True
    return False


def fits(name: str, loop: str, model: str) -> bool:
    if (loop, model) != (name, name) and PAIRS & {name, loop, model}:
        return False
    if loop in PULLS_OR_RUNS_AHEAD and model not in SERVES_AT_ANY_TIME:
        return False
    if loop == "ssp" and model not in TELLS_ITS_CLOCK:
        return False
    if loop == "bounded-delay" and model in TELLS_ITS_CLOCK:
        return False  # their `bound` are two things; it used to be taken for one
    return not (loop == "downpour" and model in HOLDS_BACK)


def corrects(loop: str, correction: str) -> bool:
    return not (correction == "dc-asgd" and loop in PUSHES_DELTAS)


@pytest.mark.parametrize("name", SERVED)
def test_worker_loop_and_model_and_correction(name: str) -> None:
    """Every factor of every strategy in place of this one's; a correction has no business with a model."""
    for loop, model in product(SERVED, SERVED):
        for values in ({LOOP: loop, MODEL: model}, {MODEL: model}):
            taken = values.get(LOOP, name)
            fine = fits(name, taken, model) and corrects(taken, name)
            assert refused(name, values) == (not fine), (name, values)
    for correction in SERVED:
        assert refused(name, {CORRECTION: correction}) == (not corrects(name, correction))
        fine = fits("synchronous", name, "synchronous") and corrects(name, correction)
        assert refused("synchronous", {LOOP: name, CORRECTION: correction}) == (not fine)


@pytest.mark.parametrize("loop", SERVED)
def test_what_is_averaged_along_and_how_it_travels(loop: str) -> None:
    for model, codec, answer_codec, optimizer in product(
        SERVED, ("none", "int8"), ("none", "int8"), (None, "momentum", "adam")
    ):
        if not fits(loop, loop, model):
            continue
        values = {MODEL: model, "codec": codec, "answer_codec": answer_codec}
        values |= {"optimizer": optimizer} if optimizer else {}
        assert not refused(loop, values)
        fine = loop not in AVERAGES or model in AVERAGES_ALONG
        fine = fine and not (loop in AVERAGES and codec != "none" and optimizer in WITH_SQUARES)
        assert refused(loop, {**values, "optimizer_state": "average"}) == (not fine), (loop, values)


@pytest.mark.parametrize("factor", [LOOP, MODEL, CORRECTION])
def test_a_factor_is_of_a_strategy_with_a_server(factor: str) -> None:
    for name, source in product(STRATEGIES, [*STRATEGIES, "nobody"]):
        if source == "nobody" or not STRATEGIES[source].has_servers:
            assert refused(name, {factor: source})
        elif not STRATEGIES[name].has_servers:
            assert not refused(name, {factor: source})  # it means nothing to it
