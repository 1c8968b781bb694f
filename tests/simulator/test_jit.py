"""With numba and without."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.job.plan import Plan
from lockstep.simulator import flows, jit, lent, rings
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
    for name, text in (("kernel.py", "1"), ("lent.py", "2"), ("shared_ring.py", "3")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(jit, "HERE", tmp_path)
    found = []
    for text in ("2", "2", "two"):
        (tmp_path / "other_kernel.py").write_text(text)
        forget()
        with jit._by_sources() as kept:
            assert kept
            found.append(numba.config.CACHE_DIR)
    forget()
    assert found[0] == found[1] != found[2]
    assert numba.config.CACHE_DIR not in found


def forget() -> None:
    jit._digest.cache_clear()
    jit._folder.cache_clear()


def test_where_nothing_can_be_kept_nothing_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """numba would take a folder of its own choice, which knows nothing of what else is compiled."""
    numba = pytest.importorskip("numba")
    (tmp_path / "kernel.py").write_text("1")
    (tmp_path / "lent.py").write_text("2")
    (tmp_path / "shared_ring.py").write_text("3")
    nowhere = tmp_path / "kernel.py" / "no folder"
    monkeypatch.setattr(jit, "HERE", tmp_path)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(nowhere))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    forget()
    with jit._by_sources() as kept:
        assert kept
        assert str(tmp_path / "__pycache__" / jit._digest()) == numba.config.CACHE_DIR
    (tmp_path / "__pycache__" / jit._digest()).rmdir()
    (tmp_path / "__pycache__").rmdir()
    (tmp_path / "__pycache__").write_text("no folder")
    forget()
    with jit._by_sources() as kept:
        assert kept
        assert str(tmp_path / "user" / "lockstep" / jit._digest()) == numba.config.CACHE_DIR
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere))
    forget()
    with jit._by_sources() as kept:
        assert not kept
    forget()


def test_what_is_lent_is_the_same() -> None:
    """Its owner keeps it, and nobody counts."""
    numba = pytest.importorskip("numba")
    given = np.zeros(3), (np.ones((2, 2), np.int64), 7)

    @numba.njit
    def change(given: Any) -> Any:
        first, (second, number) = lent.lent(given)
        first[1] = second.sum() + number
        second[:] = 5
        return number

    before = [sys.getrefcount(each) for each in (given[0], given[1][0])]
    assert change(given) == 7
    assert given[0].tolist() == [0.0, 11.0, 0.0]
    assert (given[1][0] == 5).all()
    assert [sys.getrefcount(each) for each in (given[0], given[1][0])] == before


@pytest.mark.usefixtures("without_numba")
def test_without_numba_it_is_as_it_is() -> None:
    assert lent._lent()(given := (1, "x")) is given
