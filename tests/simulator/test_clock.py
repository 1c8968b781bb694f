"""The clock of a simulation, which its run loop and single steps move alike."""

import pytest

from lockstep.simulator.events import Environment, timeout
from lockstep.simulator.pilot import pilot
from tests.support.scenarios import scenario


def test_a_step_moves_the_clock() -> None:
    environment = Environment()
    seen: list[float] = []
    for seconds in (2.0, 1.0):
        timeout(environment, seconds).then(lambda _: seen.append(environment.now))
    environment.step()
    assert (environment.now, seen) == (1.0, [1.0])
    environment.run()
    assert (environment.now, seen) == (2.0, [1.0, 2.0])


def test_the_beginning_of_a_run_passes_in_time() -> None:
    assert pilot(scenario(stop={"steps": 5}), 10.0).virtual_s == pytest.approx(0.05)
