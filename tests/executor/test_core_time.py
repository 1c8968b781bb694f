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
    taken = here.taken()
    assert 0.05 <= taken["own_s"] < 0.1
    assert taken["interrupts_s"] >= 0
    assert taken["busy_s"] > 0.02  # in ticks of 10 ms


def test_interrupts_are_the_whole_machine_s_and_count_once() -> None:
    first = {"own_s": 1.0, "interrupts_s": 0.25, "busy_s": 4.0}
    second = {"own_s": 2.0, "interrupts_s": 0.5, "busy_s": 3.9}
    assert of_all([first, second]) == 3.5
    assert of_all([]) is None


def test_an_interrupt_in_the_time_of_a_process_counts_once() -> None:
    """No more is taken than the cores were not idle."""
    assert of_all([{"own_s": 3.0, "interrupts_s": 0.5, "busy_s": 3.1}]) == 3.1


@pytest.mark.real
def test_a_run_tells_what_all_its_processes_took() -> None:
    run = lockstep.run(scenario(cluster__workers=2))
    assert run.core_s is not None
    assert run.core_s > 0
    assert lockstep.simulate(scenario()).core_s is None
