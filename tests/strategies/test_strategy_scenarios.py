"""scenarios/strategies: an example of every strategy, which learns."""

import pytest

import lockstep
from lockstep.scenarios import shipped
from lockstep.strategies import STRATEGIES
from lockstep.workloads import build
from tests.support.nightly import drawn

NAMES = [name for name in shipped() if name.startswith("strategies/")]


def test_every_strategy_has_one_of_its_name() -> None:
    strategies = {name.partition("/")[2]: lockstep.load(name).strategy.name for name in NAMES}
    assert {name: strategies.get(name) for name in STRATEGIES} == {name: name for name in STRATEGIES}


@pytest.mark.slow
@pytest.mark.parametrize("name", drawn(NAMES, one_in=3))
def test_it_learns_and_there_is_nothing_to_warn_of(name: str) -> None:
    config = lockstep.load(name)
    learner = build(config.workload, config.cluster.workers, config.seed)
    began = learner.evaluate(learner.initial()).loss
    metrics = lockstep.simulate(config).metrics
    assert metrics["loss"] < began
    assert metrics["warnings"] == []


def test_the_composed_one_has_factors_of_three() -> None:
    composed = lockstep.load("strategies/composed").strategy
    assert (composed.name, composed.parameters["correction"], composed.parameters["codec"]) == (
        "ssp-blocking",
        "dc-asgd",
        "1-bit",
    )
