"""Evaluating in a process of its own."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
import torch

from lockstep.executor import collect
from lockstep.executor.evaluating import Apart
from lockstep.scenarios import ScenarioError
from tests.support.commands import SOON, is_alive, until
from tests.support.scenarios import scenario
from tests.support.tasks import written
from tests.support.worlds import learning

pytestmark = pytest.mark.real


@contextmanager
def apart() -> Iterator[tuple[Apart, int]]:
    with closing(Apart(learning())) as there:
        yield there, there._process.pid or 0


@pytest.fixture(scope="module")
def shared() -> Iterator[Apart]:
    """One whose end is not the point, or comes with the last test that has it: it takes seconds to begin."""
    with apart() as (there, _):
        yield there


def test_it_is_the_evaluation_of_this_process() -> None:
    here = collect.evaluator(learning())
    assert here is not None
    first = here.initial()
    with apart() as (there, pid):
        assert [there.evaluate(vector) for vector in (first, 2 * first)] == [
            here.evaluate(vector) for vector in (first, 2 * first)
        ]
        os.kill(pid, signal.SIGTERM)  # as torchrun does to all of a host
        assert there.evaluate(first) == here.evaluate(first)
    assert until(lambda: not is_alive(pid), SOON)


def test_one_that_has_died_begins_anew() -> None:
    """A run that has ended well does not lose its curve because what evaluates was killed meanwhile."""
    here = collect.evaluator(learning())
    assert here is not None
    with apart() as (there, pid):
        os.kill(pid, signal.SIGKILL)
        assert there.evaluate(here.initial()) == here.evaluate(here.initial())
        again = there._process.pid or 0
        assert again != pid
    assert until(lambda: not is_alive(again), SOON)


def test_what_goes_wrong_there_is_said_here(shared: Apart) -> None:
    with pytest.raises(RuntimeError, match="size of tensor a"):
        shared.evaluate(torch.zeros(3))


def test_after_its_end_it_does_not_begin_anew(shared: Apart) -> None:
    itself = shared._process.pid
    before = children() - {itself}
    shared.close()
    with pytest.raises(RuntimeError, match="the process that evaluates the run has died"):
        shared.evaluate(torch.zeros(3))
    assert children() == before


def test_what_cannot_be_built_is_said_and_leaves_no_process(tmp_path: Path) -> None:
    root = written(tmp_path, "def f():\n    raise LookupError('no data')\n")
    before = children()
    with pytest.raises(ScenarioError, match="my_task:f raised LookupError: no data"):
        Apart(scenario(workload={"task": "my_task:f", "root": str(root)}))
    assert children() == before


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())}
