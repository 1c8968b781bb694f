"""`on_failure: wait`: a round waits for who is gone. What was under way when it was killed is lost."""

from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.scenarios.loading import made
from tests.support.failing import CRASH, document


def waiting(*faults: Any) -> Any:
    """Pushes and pulls take 15.4 ms, a gradient 50: 0 pull, 30.8 gradient, 80.8 push, 111.6 ms update."""
    recovery = {"checkpoint": {"every": "5 updates"}, "on_failure": "wait"}
    network = {"network": {"bandwidth": "10 Mbit/s"}}
    of = document(*faults, cluster=network, recovery=recovery, stop={"updates": 4})
    return lockstep.simulate(made(of))


@pytest.mark.parametrize(
    ("at_ms", "lost"),
    [(10, False), (40, False), (79, False), (85, True), (105, True), (115, False), (150, False)],
)
def test_who_is_killed_while_it_sends_a_gradient_loses_it(at_ms: int, lost: bool) -> None:
    """It goes on with the mini-batch after that; else the run ends with the bits of one without failures."""
    whole = waiting()
    found = waiting(CRASH | {"at": f"{at_ms} ms", "back_after": "100 ms"})
    assert found.metrics["updates"] == whole.metrics["updates"]
    assert found.metrics["lost_samples"] == (32 if lost else 0)
    assert np.array_equal(found.parameters, whole.parameters) is not lost
