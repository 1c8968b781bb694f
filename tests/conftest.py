"""Fixtures of all tests, and what marks do."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from lockstep import Result, Scenario, attempts, cli
from lockstep.calibration import process
from lockstep.executor import forking
from lockstep.scenarios.workload import Data
from lockstep.workloads import modules
from tests.support.command_line import Ended, Lockstep
from tests.support.nightly import NIGHT
from tests.support.scenarios import ENGINES, LEARNING, SIZES

# No deadlines: machines are noisy. In CI the same examples every time; elsewhere new ones, to find more.
settings.register_profile("nightly", deadline=None, max_examples=NIGHT)
settings.register_profile("lockstep", deadline=None, max_examples=30, derandomize=bool(os.environ.get("CI")))
settings.load_profile("lockstep")
# Bits are compared with those of the simulator, which computes on the CPU (docs/gpu.md).
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(scope="session", autouse=True)
def _one_attempt() -> Iterator[None]:
    """`lockstep.run` does not measure again by itself: on a busy machine tests would take three times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "ATTEMPTS", 1)
        yield


@pytest.fixture(autouse=True)
def _by_messages() -> None:
    """Short runs are made by their messages, whatever other tests have made, or the machine has compiled."""
    if (module := sys.modules.get("lockstep.simulator.loop")) is not None:
        module.Loop.messages, module._FEW = 0.0, module._MANY


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: real runs wait half of their time for their clock."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs once in each engine is real once; long files come first, so that none is left for the end."""
    lengths = Counter[Path]()
    for item in items:
        if getattr(item, "callspec", None) and item.callspec.params.get("engine") == "executor":
            item.add_marker("real")
        marks = {mark.name for mark in item.iter_markers()}
        if "nightly" not in marks:
            lengths[item.path] += 20 if "slow" in marks else 10 if "real" in marks else 1
    items.sort(key=lambda item: -lengths[item.path])


LEARNERS = modules(Data(dataset="digits", model="mlp", batch_size=32), in_layers=True)
TESTS = "pytest", "hypothesis", "lockstep.executor.launch", "lockstep.commands.one_run", *process.PRELOADED
START, PRELOAD = forkserver.ensure_running, forkserver.set_forkserver_preload
AHEAD = forking.ahead
# Processes whose strategy is a test's import its module; what it imports should be there already. So should
# what the jobs of later tests need: the fork server of all was started for the first.
forkserver.set_forkserver_preload = lambda names: PRELOAD([*names, *LEARNERS, *TESTS])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Real runs take long: tests that start any are marked."""

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("starts real processes: mark this test with pytest.mark.real")

    real = item.get_closest_marker("real")
    forkserver.ensure_running = START if real else refuse
    forking.ahead = AHEAD if real else nullcontext  # a command may end before it runs anything


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Callable[[Scenario], Result]:
    """Each engine in turn."""
    return ENGINES[request.param]


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
