"""What a run takes of its machine's cores."""

import time

import pytest

import lockstep
from lockstep.executor.core_time import CoreTime, of_all
from tests.support.scenarios import scenario


def test_a_process_tells_what_it_has_computed_and_not_what_it_has_slept() -> None:
    here, end = CoreTime(), time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert 0.05 <= here.taken()["own_s"] < 0.1
    assert here.taken()["interrupts_s"] >= 0


def test_interrupts_are_the_whole_machine_s_and_count_once() -> None:
    assert of_all([{"own_s": 1.0, "interrupts_s": 0.25}, {"own_s": 2.0, "interrupts_s": 0.5}]) == 3.5
    assert of_all([]) is None


@pytest.mark.real
def test_a_run_tells_what_all_its_processes_took() -> None:
    run = lockstep.run(scenario(cluster__workers=2))
    assert run.core_s is not None
    assert run.core_s > 0
    assert lockstep.simulate(scenario()).core_s is None
