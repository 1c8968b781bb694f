"""Gradients that other processes compute: the same bits, whatever becomes of these."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import lockstep
from lockstep import Scenario
from lockstep.pool import results
from lockstep.simulator import ahead
from lockstep.simulator.engine import Simulation
from lockstep.workloads import Evaluation
from tests.support.scenarios import scenario

MLP = {"dataset": "digits", "model": "mlp", "batch_size": 16}
CRASH = {"worker": 2, "at": "35 ms", "crash": True, "back_after": "20 ms"}
STRATEGIES: list[dict[str, Any]] = [
    {"name": "asynchronous", "momentum": 0.9},
    {"name": "synchronous"},
    {"name": "backup-workers", "backups": 2},
    {"name": "ssp-blocking"},
    {"name": "all-reduce", "buckets": 3},
    {"name": "local-sgd", "averaging_period": 3},
    {"name": "d-psgd"},
    {"name": "gossip"},
    {"name": "agn"},
    {"name": "pipe-sgd"},
]


def forked() -> list[multiprocessing.Process]:
    """Processes of this one, but for those that joblib keeps for the next sweep of another test."""
    return [each for each in multiprocessing.active_children() if type(each).__name__ == "ForkProcess"]


def job(**changes: Any) -> Scenario:
    given = {
        "cluster__compute": {"time": {"distribution": "gamma", "mean": "10 ms", "cv": 0.5}},
        "cluster__network": {"bandwidth": "1 Gbit/s", "latency": "1 ms"},
        "workload": MLP,
        "stop": {"steps": 8},
    }
    return scenario(**(given | changes))


class Kept(ahead.Helpers):
    """They tell what they are, and how many answers came from other processes, evaluations among them."""

    all: ClassVar[list["Kept"]]
    heard = evaluated = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.all.append(self)

    def _take(self, helper: ahead.Helper) -> None:
        before, asked = len(helper.asked), helper.asked[0][1]()
        super()._take(helper)
        self.heard += before - len(helper.asked)
        self.evaluated += asked is not None and isinstance(asked.found, Evaluation)


Helped = list[Kept]


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch) -> Helped:
    """All runs have two processes from the third gradient on: these, once they are there."""
    monkeypatch.setattr(ahead, "_AFTER_S", 0.0)
    monkeypatch.setattr(ahead, "_LEAST_S", 0.0)
    monkeypatch.setattr(ahead, "able", lambda: True)
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    monkeypatch.setattr(ahead, "Helpers", Kept)
    monkeypatch.setattr(Kept, "all", [], raising=False)
    return Kept.all


def same(one: lockstep.Result, other: lockstep.Result) -> bool:
    return one.records.equals(other.records) and np.array_equal(one.parameters, other.parameters)


def alone(of: Scenario, monkeypatch: pytest.MonkeyPatch) -> lockstep.Result:
    with monkeypatch.context() as patch:
        patch.setattr(ahead, "able", lambda: False)
        return lockstep.simulate(of)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy["name"])
def test_no_bit_depends_on_who_computes(
    strategy: dict[str, Any], helped: Helped, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = job(strategy=strategy)
    assert same(lockstep.simulate(of), alone(of, monkeypatch))
    assert [found.heard > 5 for found in helped] == [True]
    assert not forked()


@pytest.mark.parametrize(
    "workload",
    [
        {"problem": "quadratic", "batch_size": 8},
        {"problem": "logistic", "batch_size": 8},
        {"problem": "embedding", "dimension": 800, "batch_size": 8},
        {"dataset": "digits", "model": "cnn", "batch_size": 16},
    ],
)
def test_every_kind_of_learner_can_be_in_another_process(
    workload: dict[str, Any], helped: Helped, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = job(workload=workload)
    assert same(lockstep.simulate(of), alone(of, monkeypatch))
    assert helped[0].heard > 5


def test_shared_memory_is_read_when_a_gradient_begins(
    helped: Helped, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = job(strategy={"name": "hogwild"}, cluster__workers_per_host=4, cluster__memory_bandwidth="1 GB/s")
    assert same(lockstep.simulate(of), alone(of, monkeypatch))
    assert helped[0].heard > 5


def test_curves_and_targets(helped: Helped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations are made by others, too, but not those for a target, which are known."""
    target = {"metric": "loss", "at_most": 0.01}
    for stop in ({"steps": 20}, {"steps": 20, "target": target}):
        of = job(stop=stop)
        assert same(lockstep.simulate(of), alone(of, monkeypatch))
        assert helped[-1].heard > 5
        assert (helped[-1].evaluated > 1) == ("target" not in stop)


@pytest.mark.parametrize("on_failure", ["continue", "wait", "restart"])
def test_workers_fail_and_come_back(on_failure: str, helped: Helped, monkeypatch: pytest.MonkeyPatch) -> None:
    of = job(
        cluster__faults=[CRASH], cluster__detect="5 ms", stop={"steps": 12},
        recovery={"on_failure": on_failure, "checkpoint": {"every": "5 updates"}},
    )  # fmt: skip
    assert same(lockstep.simulate(of), alone(of, monkeypatch))
    assert helped[0].heard > 5
    assert not forked()


@pytest.mark.parametrize("killed", [1, 2])
@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGSTOP])
def test_what_is_not_computed_elsewhere_is_computed_here(
    killed: int, signal_: int, helped: Helped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped does not answer: it is given up after a while."""
    monkeypatch.setattr(ahead, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(ahead, "_PATIENCE", 0)
    of, told = job(stop={"steps": 20}), []

    def disturb(simulation: Simulation) -> None:
        counted(simulation)
        if helped and not told:
            told.extend(helper.process.pid for helper in helped[0]._helpers[:killed])
            for pid in told:
                os.kill(pid, signal_)

    counted = Simulation.count_step
    monkeypatch.setattr(Simulation, "count_step", disturb)
    found = lockstep.simulate(of)
    assert len(told) == killed
    assert not forked()
    assert same(found, alone(of, monkeypatch))


def test_users_code_is_not_forked(helped: Helped, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may have files open, and threads of its own."""
    (tmp_path / "plain.py").write_text(
        "import lockstep, torch\n"
        "def task():\n"
        "    data = torch.utils.data.TensorDataset(torch.arange(64.)[:, None])\n"
        "    loss = lambda model, batch: model(batch[0]).pow(2).mean()\n"
        "    return lockstep.Task(torch.nn.Linear(1, 1), data, data, loss, {})\n"
    )
    monkeypatch.chdir(tmp_path)
    lockstep.simulate(job(workload={"task": "plain:task", "batch_size": 8}))
    assert not helped


def test_no_process_is_left_when_a_run_is_interrupted(helped: Helped) -> None:
    def interrupt(_: float) -> None:
        if helped:
            assert len(forked()) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lockstep.simulate(job(stop={"steps": 100}), interrupt)
    assert helped
    assert not forked()


KILLED = """
import multiprocessing
import joblib, lockstep
from lockstep.simulator import ahead
ahead._AFTER_S = ahead._LEAST_S = 0.0
joblib.cpu_count = lambda: 2
def tell(_):
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
lockstep.simulate(lockstep.load("quickstart", ["stop={steps: 100000}"]), tell)
"""


def test_no_process_is_left_when_a_run_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        children: list[int] = []
        while not children:
            line = run.stdout.readline()
            assert line
            children = [*map(int, line.split())]
        run.send_signal(signal.SIGKILL)
    assert len(children) == 2
    begun = time.monotonic()
    while any(map(_alive, children)):
        assert time.monotonic() - begun < 60
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_process_of_a_sweep_has_none() -> None:
    """The sweep's others have the cores."""
    with results([ahead.able] * 4, jobs=2) as found:
        assert [*found] == [False] * 4
