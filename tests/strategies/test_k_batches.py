"""K-batch-sync: which gradients are in updates."""

import pytest

import lockstep
from lockstep.analysis.records import of
from tests.support.scenarios import scenario


@pytest.mark.parametrize("workers", [1, 3])
def test_the_last_gradients_of_who_leaves_are_in_an_update(workers: int) -> None:
    """Its worker does not wait for an answer: it has pushed, and leaves."""
    strategy = {"name": "k-batch-sync", "k": 2}
    found = lockstep.simulate(scenario(strategy=strategy, stop={"steps": 4}, cluster__workers=workers))
    pushes = of(found.records, "message", ["kind"])["kind"] == "push"
    assert len(of(found.records, "gradient", ["node"])) == 4 * workers
    samples = found.metrics["samples"] // found.scenario.workload.batch_size
    assert samples + found.metrics["dropped"] == pushes.sum() >= 3
