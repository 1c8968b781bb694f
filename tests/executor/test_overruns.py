"""Gradients that take longer than their emulated time, of which a run warns."""

import pytest

from tests.support.nodes import real_nodes
from tests.support.worlds import learning


def test_a_gradient_that_is_shorter_because_the_last_was_late_is_no_overrun() -> None:
    """Its time is the one that was drawn, whatever is taken off it."""
    time = {"distribution": "constant", "value": "100 ms"}
    with real_nodes(learning(cluster__workers=1, cluster__compute={"time": time})) as (worker, _):
        port = worker.port
        port.computing._late = 99.999e-3
        work = port.compute(port.initial, 0)
        port.computing._begun.pop()()
        assert work.done.at - port.zero - work.start == pytest.approx(1e-6, abs=1e-7)
        assert port.computing.overruns == []
