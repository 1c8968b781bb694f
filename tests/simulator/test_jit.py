"""With numba and without."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.job.plan import Plan
from lockstep.simulator import flows, jit, rings
from lockstep.simulator.engine import Simulation
from tests.support.scenarios import scenario


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "numba", None)
    jit.njit.cache_clear()
    yield
    jit.njit.cache_clear()


def solver(monkeypatch: pytest.MonkeyPatch, strategy: str) -> object:
    """What solves in the end where much is to be solved, and at once."""
    monkeypatch.setattr(flows, "_MUCH", 0)
    monkeypatch.setattr(flows, "_FEW", 0)
    monkeypatch.setattr(rings, "_MANY", 0)
    config = scenario(
        cluster__workers=6,
        cluster__workers_per_host=2,
        cluster__servers={"count": 6, "colocated": True},
        cluster__network={"bandwidth": "1 MB/s", "latency": "1 ms", "intra_host": {"bandwidth": "9 MB/s"}},
        cluster__compute={"time": {"distribution": "exponential", "mean": "1 ms"}},
        strategy=strategy,
        stop={"steps": 3},
    )
    simulation = Simulation(Plan.of(config))
    simulation.run()
    return simulation.network.flows._compiled


@pytest.mark.usefixtures("without_numba")
def test_without_numba_python_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not jit.able()
    assert solver(monkeypatch, "asynchronous") is None
    solver(monkeypatch, "all-reduce")


def test_with_numba_the_kernel_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    assert solver(monkeypatch, "asynchronous") is not None


def test_numba_is_not_loaded_before_it_is_needed() -> None:
    """It takes longer than a small run."""
    code = "import sys, lockstep.simulator.engine; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_what_is_compiled_is_kept_by_all_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """numba only looks at a function's own file."""
    numba = pytest.importorskip("numba")
    for name, text in (("kernel.py", "1"), ("other_kernel.py", "2"), ("shared_ring.py", "3")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(jit, "HERE", tmp_path)
    found = []
    for text in ("2", "2", "two"):
        (tmp_path / "other_kernel.py").write_text(text)
        jit._digest.cache_clear()
        with jit._by_sources():
            found.append(numba.config.CACHE_DIR)
    jit._digest.cache_clear()
    assert found[0] == found[1] != found[2]
    assert numba.config.CACHE_DIR not in found
