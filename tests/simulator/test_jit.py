"""With numba and without."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.job.plan import Plan
from lockstep.simulator import jit, lent, native, rings, solving
from lockstep.simulator.engine import Simulation
from tests.support.scenarios import scenario


@pytest.fixture
def anew() -> Iterator[None]:
    """What has been found out is forgotten, before and after."""
    known = jit.njit, jit.installed, jit.linker, jit.folders, jit.kept_in, jit._digest, native._library
    for each in known:
        each.cache_clear()
    yield
    for each in known:
        each.cache_clear()


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch, anew: None) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)


@pytest.fixture
def without_a_compiler(monkeypatch: pytest.MonkeyPatch, anew: None) -> None:
    monkeypatch.setattr(jit, "which", lambda _: None)


def solver(monkeypatch: pytest.MonkeyPatch, strategy: str) -> object:
    """What solves in the end where much is to be solved, and at once."""
    monkeypatch.setattr(solving, "_MUCH", 0)
    monkeypatch.setattr(solving, "_FEW", 0)
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
    return simulation.network.flows._solving.compiled


@pytest.mark.usefixtures("without_numba")
def test_without_numba_python_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not jit.able()
    assert native.native("kernel", "solve") is None
    assert not native.ready("kernel", "solve")
    assert solver(monkeypatch, "asynchronous") is None
    solver(monkeypatch, "all-reduce")


def test_with_numba_the_kernel_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    assert solver(monkeypatch, "asynchronous") is not None


@pytest.mark.parametrize("needed", ["lockstep.simulator.engine", "lockstep.simulator.traced_kernel"])
def test_numba_is_not_loaded_before_it_is_needed(needed: str) -> None:
    """It takes longer than a small run."""
    code = f"import sys, {needed}; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    compiles = jit.installed() and not jit.linker() and needed.endswith("kernel")
    assert done.stdout == f"{compiles}\n"


SOURCES = "kernel.py", *jit._MORE


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, anew: None) -> Path:
    """A folder with what is compiled."""
    for name in SOURCES:
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(jit, "HERE", tmp_path)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return tmp_path


def place() -> Path | None:
    """Where things are kept now."""
    for each in (jit._digest, jit.folders, jit.kept_in, jit.linker):
        each.cache_clear()
    return jit.kept_in()


def test_what_is_compiled_is_kept_by_all_sources(sources: Path) -> None:
    """numba only looks at a function's own file."""
    found = []
    for name, text in (("other_kernel.py", "2"), ("other_kernel.py", "2"), ("building.py", "two")):
        (sources / name).write_text(text)
        found.append(place())
    assert found[0] == found[1] != found[2]


def test_where_nothing_can_be_kept_nothing_is(monkeypatch: pytest.MonkeyPatch, sources: Path) -> None:
    """numba would take a folder of its own choice, which knows nothing of what else is compiled."""
    numba = pytest.importorskip("numba")
    nowhere = sources / "kernel.py" / "no folder"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(nowhere))
    first = place()
    assert first == sources / "__pycache__" / jit._digest()
    with jit._by_sources() as kept:
        assert kept
        assert str(first) == numba.config.CACHE_DIR
    assert str(first) != numba.config.CACHE_DIR
    first.rmdir()
    first.parent.rmdir()
    first.parent.write_text("no folder")
    assert place() == sources / "user" / "lockstep" / jit._digest()
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere))
    assert place() is None
    with jit._by_sources() as kept:
        assert not kept
    assert jit.linker() is None  # numba compiles in the process


def test_nothing_is_kept_in_a_folder_of_somebody_else(monkeypatch: pytest.MonkeyPatch, sources: Path) -> None:
    """Who could put there what is executed here."""
    own = Path.lstat

    def of_another(path: Path) -> os.stat_result:
        found = own(path)
        return os.stat_result((*found[:4], 4321, *found[5:])) if "__pycache__" in str(path) else found

    monkeypatch.setattr(Path, "lstat", of_another)
    assert place() == sources / "user" / "lockstep" / jit._digest()


def test_a_folder_that_others_can_write_is_closed_to_them(sources: Path, tmp_path: Path) -> None:
    folder = place()
    assert folder is not None
    folder.chmod(0o777)
    assert place() == folder
    assert folder.stat().st_mode & 0o777 == 0o755
    folder.chmod(0o700)
    place()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to(tmp_path)  # what is there is not ours to close
    assert place() == sources / "user" / "lockstep" / jit._digest()


def test_who_has_no_home_compiles_beside_the_sources(monkeypatch: pytest.MonkeyPatch, sources: Path) -> None:
    def nowhere() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    assert place() == sources / "__pycache__" / jit._digest()


@pytest.mark.usefixtures("without_a_compiler")
def test_what_is_lent_is_the_same() -> None:
    """Its owner keeps it, and nobody counts."""
    numba = pytest.importorskip("numba")
    lend = lent._lent()
    given = np.zeros(3), (np.ones((2, 2), np.int64), 7)

    @numba.njit
    def change(given: Any) -> Any:
        first, (second, number) = lend(given)
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
