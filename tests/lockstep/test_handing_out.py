"""How the runs of a sweep are handed out: one by one, or short ones together, and what comes back."""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import pytest

from lockstep.job.version import CODE, version
from lockstep.sweeping import running
from lockstep.sweeping.backends import Workers
from lockstep.sweeping.points import plan
from lockstep.sweeping.sweep import sweep
from tests.support.scenarios import SIZES


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    file = tmp_path / "swept.yaml"
    file.write_text(SIZES + "sweep: {cluster.workers: [1, 2], strategy.name: [synchronous, asynchronous]}\n")
    return file


def test_a_worker_with_other_code_is_refused(swept: Path) -> None:
    scenario = plan(swept).runs[0].scenario
    told = r"another lockstep's code \(\w+, not old\); install the same"
    with pytest.raises(running.OtherVersion, match=told):
        running.make(scenario, "simulator", False, version("simulator") | {CODE: "old"}, False)


class _Clock:
    """A clock that moves 10 ms at each reading, and 10 s from reading `slower_from` on."""

    def __init__(self, slower_from: float = inf) -> None:
        self._now, self._readings, self._slower_from = 0.0, 0, slower_from

    def __call__(self) -> float:
        self._readings += 1
        self._now += 0.01 if self._readings < self._slower_from else 10.0
        return self._now


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("error", [BrokenProcessPool(), RuntimeError("a worker has gone")])
def test_the_run_that_ends_its_process_is_found_and_the_rest_goes_on(
    swept: Path, monkeypatch: pytest.MonkeyPatch, together: int, error: Exception
) -> None:
    monkeypatch.setattr(running, "monotonic", _Clock())
    planned = plan(swept, ["sweep.seeds=20"])
    at = 25
    killer, asked = planned.runs[at].scenario, list[int]()

    @contextmanager
    def fragile() -> Any:
        broken: list[bool] = []

        def submit(make: Callable[..., Any], some: list[Any]) -> "Future[Any]":
            future: Future[Any] = Future()
            asked.append(len(some))
            if broken or any(scenario == killer for scenario, *_ in some):
                broken.extend([True] * isinstance(error, BrokenProcessPool))
                future.set_exception(error)
            else:
                future.set_result(make(some))
            return future

        yield Workers(submit, 1, 4, together)

    found = sweep(planned, fragile)
    count = len(planned.runs)
    assert found.table["status"].tolist() == ["ok"] * at + ["failed"] + ["ok"] * (count - at - 1)
    said = "was killed" if isinstance(error, BrokenProcessPool) else "a worker has gone"
    assert said in found.table["error"][at]
    assert max(asked) == together


@pytest.mark.parametrize("slower", [False, True])
def test_short_runs_are_made_together_each_once(
    swept: Path, monkeypatch: pytest.MonkeyPatch, slower: bool
) -> None:
    """Also where one takes long after all: what was sent with it comes back, and is sent again."""
    planned = plan(swept, ["sweep.seeds=20"])
    runs, points = len(planned.runs), len(planned.points)
    monkeypatch.setattr(running, "monotonic", _Clock(2 * points + 2) if slower else _Clock())
    asked, made = list[list[int]](), list[int]()
    point = {run.scenario.model_dump_json(): run.point for run in planned.runs}

    @contextmanager
    def counting() -> Any:
        def submit(make: Callable[..., Any], some: list[Any]) -> "Future[Any]":
            future: Future[Any] = Future()
            future.set_result(make(some))
            asked.append([point[scenario.model_dump_json()] for scenario, *_ in some])
            made.append(len(future.result()[0]))
            return future

        yield Workers(submit, 1, 1, 4)

    assert sweep(planned, counting).table.equals(sweep(planned).table)
    assert sum(made) == runs
    assert asked[:points] == [[number] for number in range(points)]  # which say what one takes
    assert all(len({*each}) == 1 for each in asked)
    assert len(asked[points]) == 4
    assert len(asked[-1]) == 1  # fewer at the end, so that all who work end at once
    assert {*made} == {1} if slower else made == [*map(len, asked)]


def test_more_are_sent_where_nothing_ends_for_long(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_PATIENCE_S", 0.01)
    sent = list[tuple["Future[Any]", Callable[..., Any], list[Any]]]()

    @contextmanager
    def slow() -> Any:
        def submit(make: Callable[..., Any], some: list[Any]) -> "Future[Any]":
            sent.append((Future(), make, some))
            if len(sent) >= 20:  # before that nothing ends
                for future, make, some in sent:
                    if not future.done():
                        future.set_result(make(some))
            return sent[-1][0]

        yield Workers(submit, 1, 30, 4)

    assert sweep(plan(swept, ["sweep.seeds=20"]), slow).failed == 0


def test_while_it_is_not_known_how_long_runs_take_few_are_sent(swept: Path) -> None:
    """Unless nothing ends for long: there may be more processes meanwhile."""
    planned = plan(swept, ["sweep.seeds=20"])
    left = running._Left(planned.runs, Workers(lambda *_: Future(), 1, 30, 4))
    points = len(planned.points)
    sent = [left.take(number) for number in range(points)]
    assert [[run.point for run in some] for some in sent] == [[number] for number in range(points)]
    assert left.take(points) == []
    left.waits = False
    assert len(left.take(points)) == 1
    assert left.take(30) == []
    left.took[0] = 0.001
    some = left.take(points)
    assert len(some) == 4
    left.give_back(some[:2], alone=True)
    left.give_back(some[2:])  # what is given back first goes on last
    assert [left.take(points) for _ in range(3)] == [some[2:], some[:1], some[1:2]]
