"""Shared by all tests: small scenarios, both engines, and the command."""

import os
import sys
from collections.abc import Callable, Iterable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

import lockstep
from lockstep import Result, Scenario, cli

# No deadlines: machines are noisy. In CI the same examples every time; elsewhere new ones, to find more.
settings.register_profile("lockstep", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("lockstep")


def scenario(**changes: Any) -> Scenario:
    """A small sizes-only scenario: 4 workers, 1 server, constant 10 ms; `a__b=value` changes key a.b."""
    document: dict[str, Any] = {
        "name": "test",
        "cluster": {
            "workers": 4,
            "servers": 1,
            "network": {},
            "compute": {"time": {"distribution": "constant", "value": "10 ms"}},
        },
        "workload": {"parameters": 1000},
        "strategy": {"name": "asynchronous"},
        "stop": {"steps": 5},
        "seed": 3,
    }
    for key, value in changes.items():
        *path, last = key.split("__")
        place = document
        for word in path:
            place = place[word]
        place[last] = value
    return Scenario.model_validate(document)


ENGINES: dict[str, Callable[[Scenario], Result]] = {"simulator": lockstep.simulate, "executor": lockstep.run}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs once in each engine is real once; who strikes at a run counts the seconds until its end."""
    for item in items:
        if "under_way" in getattr(item, "fixturenames", ()):
            item.add_marker("alone")
        if getattr(item, "callspec", None) and item.callspec.params.get("engine") == "executor":
            item.add_marker("real")


START, PRELOAD = forkserver.ensure_running, forkserver.set_forkserver_preload
# Processes whose strategy is a test's import its module; what it imports should be there already.
forkserver.set_forkserver_preload = lambda modules: PRELOAD([*modules, "pytest", "hypothesis"])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Real runs take long: tests that start any are marked."""

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("starts real processes: mark this test with pytest.mark.real")

    forkserver.ensure_running = START if item.get_closest_marker("real") else refuse


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Callable[[Scenario], Result]:
    """Each engine in turn."""
    return ENGINES[request.param]


SIZES = """\
# Nothing is learned here. This sentence is not shown.
name: small
cluster:
  workers: 2
  network: {bandwidth: 1 Gbit/s, latency: 50 us}
  compute: {time: {distribution: exponential, mean: 20 ms}}
workload: {parameters: 1000, batch_size: 8}
strategy: asynchronous
stop: {steps: 6}
seed: 5
"""
LEARNING = SIZES.replace("{parameters: 1000, batch_size: 8}", "{problem: quadratic, batch_size: 8}")
COMMAND = [sys.executable, "-c", "from lockstep.cli import main; main()"]


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str


Lockstep = Callable[..., Ended]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lockstep:
    """Run `lockstep` with these arguments in this process."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["lockstep", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as leave:
            cli.main()
        return Ended(int(leave.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def sizes_only(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SIZES)
    return path


@pytest.fixture
def learning(tmp_path: Path) -> Path:
    path = tmp_path / "learning.yaml"
    path.write_text(LEARNING)
    return path


def of_the_run(warnings: Iterable[str]) -> list[str]:
    """Those that do not come of a machine which others use too."""
    busy = "longer than their emulated time", "other guests of this machine's host"
    return [warning for warning in warnings if not any(words in warning for words in busy)]


def fine(ended: Ended) -> str:
    assert ended.status == 0, ended.err
    return ended.out
