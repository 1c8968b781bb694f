"""A run that is over before what its strategy is named for has come into effect says so."""

from typing import Any

import pytest

import lockstep
from lockstep.strategies import STRATEGIES
from lockstep.strategies.bounds import after
from tests.support.scenarios import scenario


def told(run: lockstep.Result) -> list[str]:
    return [warning for warning in run.metrics["warnings"] if "what was to come" in warning]


@pytest.mark.parametrize(
    ("strategy", "key", "words"),
    [
        ({"name": "diloco"}, "averaging_period", "500 mini-batches (by default), and the run had 28"),
        ({"name": "adacomm"}, "interval_s", "60 seconds (by default), and the run had 0.28"),
        ({"name": "post-local-sgd"}, "switch_step", "100 mini-batches (by default), and the run had 28"),
        ({"name": "aeasgd"}, "communication_window", "32 mini-batches (by default), and the run had 28"),
        ({"name": "asynchronous", "warm_start": 500}, "warm_start", "500 updates, and the run had 112"),
        ({"name": "downpour", "fetch_period": 28}, "fetch_period", "28 mini-batches, and the run had 28"),
    ],
    ids=str,
)
def test_what_never_acts_is_a_warning(strategy: dict[str, Any], key: str, words: str) -> None:
    """Nothing of the run comes after it: no worker goes on from a mean, or steps by itself."""
    (warning,) = told(lockstep.simulate(scenario(strategy=strategy, stop={"steps": 28})))
    assert warning.startswith(f"strategy.{key} is {words}: what was to come")


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "diloco", "averaging_period": 27},
        {"name": "adacomm", "interval_s": 0.2},
        {"name": "post-local-sgd", "switch_step": 27},
        {"name": "asynchronous", "warm_start": 20},
        {"name": "synchronous"},
    ],
    ids=str,
)
def test_what_acts_is_none(strategy: dict[str, Any]) -> None:
    assert not told(lockstep.simulate(scenario(strategy=strategy, stop={"steps": 28})))


def test_both_engines_tell(engine) -> None:
    strategy = {"name": "diloco", "optimizer": "sgd"}
    (warning,) = told(engine(scenario(strategy=strategy, stop={"steps": 4})))
    assert "500 mini-batches (by default), and the run had 4:" in warning


def test_parameters_that_wait_say_for_what() -> None:
    """Those whose names say so; others would be forgotten."""
    names = ("period", "window", "interval", "warm_start", "switch")
    for strategy in STRATEGIES.values():
        for name, parameter in strategy.parameters.items():
            assert (after(parameter.annotation) is not None) == any(word in name for word in names), name


def test_whose_learning_rate_it_is_is_said() -> None:
    """A file's learning rate is AdamW's as soon as the strategy is diloco."""
    rate = {"name": "diloco", "averaging_period": 2, "learning_rate": 0.1}
    (warning,) = lockstep.simulate(scenario(strategy=rate)).warnings[:1]
    assert (
        warning == "strategy.learning_rate is adamw's, which diloco takes if strategy.optimizer is not given"
    )
    said = {**rate, "optimizer": "sgd"}
    assert not any("learning_rate" in each for each in lockstep.simulate(scenario(strategy=said)).warnings)
