"""With numba and without."""

import sys
from collections.abc import Iterator

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
