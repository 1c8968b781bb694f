"""Libraries of what numba compiles: built once, loaded without numba, by nobody else's hand."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lockstep.simulator import jit, kernel, native

CODE = """
import sys, numpy as np
from lockstep.simulator import kernel
from lockstep.simulator.native import native
solve = native("kernel", "solve")
none = np.zeros(0, np.int64)
counts = np.full(2, 7)
rows = [np.zeros((kernel.LINK_REALS, 3)), np.zeros((kernel.LINK_WHOLES, 3), int)]
rows += [np.zeros((5, 0), int), np.zeros((3, 0), int)]
print(solve(none, none, none, none, 1, 0, *rows, counts), counts, "numba" in sys.modules)
"""
NEEDS = pytest.mark.skipif(not jit.linker() or not jit.installed(), reason="no numba, or no C compiler")


def forget() -> None:
    for each in (jit.folders, jit.kept_in, native._library):
        each.cache_clear()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where libraries are kept."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    forget()
    yield tmp_path / jit._digest()
    forget()


def told(where: Path) -> str:
    """In a folder where another numba lies, which nobody has asked for."""
    (where / "numba.py").write_text("raise SystemExit('not this one')")
    (where / "llvmlite.py").write_text("raise SystemExit('nor this one')")
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=where)
    return done.stdout


@NEEDS
@pytest.mark.slow
def test_a_library_is_built_once_and_needs_no_numba(folder: Path, tmp_path: Path) -> None:
    assert not native.ready("kernel", "solve")
    assert told(tmp_path) == "-1 [0 0] False\n"
    (library,) = [each for each in folder.iterdir() if each.name != "builds"]  # and nothing else
    assert library.name.startswith("kernel-solve-")
    assert native.ready("kernel", "solve")
    built = library.stat().st_mtime_ns
    assert told(tmp_path) == "-1 [0 0] False\n"
    assert library.stat().st_mtime_ns == built
    library.chmod(0o775)  # others may have written it: it is built again
    assert not native.ready("kernel", "solve")
    assert told(tmp_path) == "-1 [0 0] False\n"
    assert library.stat().st_mtime_ns > built
    folder.chmod(0o777)
    assert not native.ready("kernel", "solve")
    folder.chmod(0o755)


RUNS = """
import sys
import pandas as pd
from lockstep import scenarios
from lockstep.job.plan import Plan
from lockstep.simulator import loop, solving
from lockstep.simulator.engine import Simulation
solving._MUCH = solving._FEW = loop._MANY = 0
changed = scenarios.changing(scenarios.load("sizes-only")).changed
two_level = {"strategy.name": "all-reduce", "strategy.algorithm": "two-level"}
for strategy in {"strategy.name": "asynchronous"}, two_level:
    config = changed({"stop.steps": 20, "cluster.workers_per_host": 4, "cluster.servers.count": 4} | strategy)
    for shortcuts in True, False:
        simulation = Simulation(Plan.of(config), shortcuts=shortcuts)
        simulation.run()
        rows = simulation.result().records
        print(len(rows), pd.util.hash_pandas_object(rows).sum())
print("numba" in sys.modules, file=sys.stderr)
"""


@NEEDS
@pytest.mark.nightly  # half a minute to compile
def test_without_a_compiler_numba_compiles_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same bits: solvers and loops, and what has neither."""
    found = []
    for path in (os.environ["PATH"], ""):
        monkeypatch.setenv("PATH", path)
        done = subprocess.run([sys.executable, "-c", RUNS], capture_output=True, text=True, check=True)
        found.append(done.stdout)
        assert done.stderr == f"{not path}\n"
    assert found[0] == found[1]


@NEEDS
@pytest.mark.slow
def test_of_some_that_need_it_one_builds(folder: Path) -> None:
    command, built = [sys.executable, "-c", CODE], set[int]()
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    while any(each.poll() is None for each in running):
        built |= {each.stat().st_ino for each in folder.glob("*.so")}
        time.sleep(0.01)
    assert [each.communicate()[0] for each in running] == ["-1 [0 0] False\n"] * 3
    assert len(built) == 1


@NEEDS
@pytest.mark.slow
def test_what_cannot_be_built_is_said_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And Python goes on."""
    compiler = folder.parent / "cc"
    compiler.write_text("#!/bin/sh\necho in function x >&2\necho fatal error: no room >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(native, "linker", lambda: compiler)
    with pytest.warns(RuntimeWarning, match="could not build what they need: fatal error: no room"):
        assert native.native("kernel", "solve") is None
    assert native.native("kernel", "solve") is None
    assert [each.name for each in folder.iterdir()] == ["builds"]


@NEEDS
@pytest.mark.parametrize("text", [b"", b"no library"])
def test_a_library_that_cannot_be_loaded_is_said_once(folder: Path, text: bytes) -> None:
    """Of another kind of machine, or on a file system from which nothing is executed."""
    folder = jit.kept_in() or folder
    path = native._path(folder, "kernel", "solve")
    path.write_bytes(text)
    path.chmod(0o755)
    with pytest.warns(RuntimeWarning, match="could not build what they need: .*kernel-solve"):
        assert native.native("kernel", "solve") is None
    assert native.native("kernel", "solve") is None


@NEEDS
def test_what_one_that_was_killed_has_left_is_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = jit.kept_in()
    assert kept == folder
    (kept / "building-xyz").mkdir()
    (kept / "building-xyz" / "made.o").write_text("half")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.warns(RuntimeWarning, match="it was killed"):
        assert native.native("kernel", "solve") is None
    assert [each.name for each in kept.iterdir()] == ["builds"]


@NEEDS
def test_arrays_of_another_kind_are_refused() -> None:
    """Their bytes would be read as something else."""
    solve = native.native("kernel", "solve")
    assert solve is not None
    none, counts = np.zeros(0, np.int64), np.zeros(2, np.int64)
    rows = [np.zeros((kernel.LINK_REALS, 2)), np.zeros((kernel.LINK_WHOLES, 2), np.int64)]
    more = [np.zeros((5, 0), np.int64), np.zeros((3, 0), np.int64)]
    assert solve(*[none] * 4, 1, 0, *rows, *more, counts) == -1
    for wrong in (rows[1], rows[0].astype(np.float32), rows[0][0], rows[0][:, ::2]):
        with pytest.raises(TypeError, match="not 2 of float64"):
            solve(*[none] * 4, 1, 0, wrong, *rows[1:], *more, counts)
