"""What is left of a run when its result is there."""

import gc

import pytest

import lockstep
from lockstep.simulator import engine


def test_nodes_of_a_large_run_are_let_go_before_anything_else_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a few small things that live on keep the memory of all of them."""
    scenario = lockstep.load("sizes-only", ["stop={steps: 2}"])
    monkeypatch.setattr(engine, "_MANY", 0)
    of_other_tests = simulations()
    gc.disable()
    try:
        result = lockstep.simulate(scenario)
        left = [each for each in simulations() if each not in of_other_tests]
    finally:
        gc.enable()
    assert result.metrics["updates"]
    assert not left


def simulations() -> list[engine.Simulation]:
    return [each for each in gc.get_objects() if type(each) is engine.Simulation]
