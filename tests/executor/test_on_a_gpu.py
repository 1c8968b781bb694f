"""Real runs on a GPU, or another accelerator of torch: skipped where none is to be seen (docs/gpu.md).

A GPU adds in another order than a CPU: so its numbers are near those of a CPU. Those of two runs on it are
the same.
"""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lockstep
from lockstep.executor import native, process
from lockstep.executor.backward import Beside
from lockstep.executor.devices import free_bytes, own, to_host
from lockstep.executor.launch import RunFailed
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import made
from lockstep.workloads import build
from tests.contract.promises import check_promises, learning
from tests.contract.rows import ROWS, Row
from tests.support.commands import HANGS, nodes, wait_until_on_disk
from tests.support.device_jobs import COUNTS, MODEL, SERVED, STRATEGIES, job, served
from tests.support.failing import CRASH, SERVER
from tests.support.failing import document as faulty
from tests.support.scenarios import scenario
from tests.support.tasks import task, written

NONE = not torch.accelerator.is_available()
CUDA = torch.cuda.is_available()
pytestmark = [pytest.mark.real, pytest.mark.skipif(NONE, reason="no GPU on this machine")]
on_cuda = pytest.mark.skipif(not CUDA, reason="no GPU that CUDA drives on this machine")
# Which elements a dropout drops is drawn on the device. A bias before a normalisation has no gradient but
# rounding, which Adam makes steps of.
WHOLE = MODEL.replace("nn.Dropout(0.2), ", "").replace("nn.Linear(2, 3000)", "nn.Linear(2, 3000, bias=False)")
assert "bias=False" in WHOLE
assert "Dropout" not in WHOLE
JOBS = {**{name: job(each) for name, each in STRATEGIES.items()},
        **{f"servers, {name}": served(each) for name, each in SERVED.items()}}  # fmt: skip
the_real_main = process.main


def described(
    folder: Path, document: dict[str, Any], model: str = MODEL, **cluster: Any
) -> lockstep.Scenario:
    """The scenario of a document about a user's task, in a folder of its own; `cluster`: changes there."""
    written(folder, task(model, more=COUNTS))
    changed = json.loads(json.dumps(document))
    changed["cluster"] |= cluster
    (folder / "my.yaml").write_text(json.dumps(changed))
    return lockstep.load(folder / "my.yaml")


def are_near(there: np.ndarray, here: np.ndarray, edges: bool) -> None:
    """As near as float32 is; where there are edges, few elements may have fallen to the other side."""
    off = np.abs(there - here) / np.abs(here).max()
    assert np.isfinite(there).all()
    told = f"{np.mean(off > 1e-3):.2%} are off by more than 0.001, by {off.max():.3g} at the most"
    assert np.quantile(off, 0.98 if edges else 1) < 1e-3, told


def has_edges(strategy: dict[str, Any]) -> bool:
    """What a codec rounds lies on this or that side; Adam's steps are as large for a gradient near 0."""
    return "codec" in strategy or "adam" in strategy.values() or "diloco" in strategy["name"]


@pytest.mark.parametrize("name", JOBS)
def test_a_run_ends_near_one_on_the_cpu(tmp_path: Path, name: str) -> None:
    document = JOBS[name]
    servers = document["cluster"].get("servers", {})
    there, here = (
        lockstep.run(described(tmp_path / device, document, WHOLE, device=device,
                               **({"servers": {**servers, "device": device}} if servers else {})))
        for device in ("auto", "cpu")
    )  # fmt: skip
    are_near(there.parameters, here.parameters, has_edges(document["strategy"]))


@pytest.mark.parametrize("name", JOBS)
def test_two_runs_end_with_the_same_bits(tmp_path: Path, name: str) -> None:
    """With dropout, normalisation, and gradients in parts beside messages."""
    servers = JOBS[name]["cluster"].get("servers", {})
    cluster = {"servers": {**servers, "device": "auto"}} if servers else {}
    config = described(tmp_path, JOBS[name], **cluster)
    assert np.array_equal(lockstep.run(config).parameters, lockstep.run(config).parameters)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_strategy_keeps_its_promises(row: Row) -> None:
    result = lockstep.run(learning(row))
    check_promises(row, result)
    if row.deterministic:
        are_near(result.parameters, lockstep.simulate(learning(row)).parameters, has_edges(row.strategy))


@pytest.mark.parametrize(
    ("strategy", "fault"),
    [({"name": "synchronous"}, SERVER), ({"name": "synchronous"}, CRASH),
     ({"name": "diloco", "averaging_period": 2}, CRASH)],
)  # fmt: skip
@pytest.mark.parametrize("servers", ["auto", "cpu"])
def test_who_goes_on_from_a_checkpoint_ends_with_the_bits_of_who_never_died(
    strategy: dict[str, Any], fault: Any, servers: str
) -> None:
    more: dict[str, Any] = {"strategy": {**strategy, "optimizer": "adam"}, "stop": {"updates": 30}}
    cluster = {"servers": {"device": servers}}
    if strategy["name"] == "diloco" and servers == "auto":
        pytest.skip("it has no servers")
    broken, whole = (
        lockstep.run(made(faulty(*faults, cluster=cluster, **more))) for faults in ((fault,), ())
    )
    assert broken.metrics["failures"] == 1
    assert np.array_equal(broken.parameters, whole.parameters)


def test_a_run_on_it_is_not_replayed(tmp_path: Path, command: Callable[..., Any]) -> None:
    """A simulation computes on the CPU, which has other bits."""
    shorter = ("--set", "workload.model=mlp", "--set", "stop={epochs: 1}")
    ended = command("run", "quickstart", *shorter, "--quiet", "--out", tmp_path / "run")
    assert ended.status == 0, ended.err
    ended = command("simulate", "--replay", tmp_path / "run", "--quiet")
    assert ended.status == 2
    assert "runs on the CPU alone can be, and this one was on" in ended.err


def digits(split: dict[str, Any] | None = None, **more: Any) -> lockstep.Scenario:
    workload = {"dataset": "digits", "model": "cnn", "batch_size": 32, **more}
    return scenario(
        cluster__workers=2, cluster__compute="measured", workload=workload, parallelism=split or {},
        strategy={"name": "synchronous", "learning_rate": 0.1}, stop={"epochs": 10},
    )  # fmt: skip


@pytest.mark.parametrize("split", [{}, {"micro_batches": 2}], ids=str)
@pytest.mark.parametrize("precision", ["bf16", "fp16", "float32"])
def test_it_learns_the_digits(precision: str, split: dict[str, int]) -> None:
    assert lockstep.run(digits(split, precision=precision)).metrics["accuracy"] > 0.9


@pytest.mark.parametrize("precision", ["bf16", "fp16", "float32"])
def test_a_compiled_model_learns_them_too_or_is_refused(precision: str) -> None:
    learned, why = 1.0, "must be false: of this model"
    try:
        learned = lockstep.run(digits(precision=precision, compile=True)).metrics["accuracy"]
    except ScenarioError as error:
        why = error.problem
    assert learned > 0.9
    assert why.startswith("must be false: of this model")


@pytest.mark.alone
def test_a_first_part_is_on_the_host_before_the_pass_has_ended() -> None:
    """Copies go beside the computation: they do not wait for the rest of the gradient."""
    config = scenario(workload={"dataset": "fake", "model": "resnet18", "batch_size": 64})
    learner = build(config.workload, 1, config.seed, own())
    parameters = learner.initial()
    cut = len(parameters) - 513_000  # the last layer
    beside = Beside(parameters.device)
    for _ in range(3):
        found = beside.backward(
            lambda ready: learner.gradient(parameters, 0, 0, ready), [cut, 0], time.monotonic
        )
        found.parts[0].block()
        on_host = to_host(found.parts[0]._gradient[cut:])
        there = time.monotonic()
        found.parts[1].block()
        found.done.block()
    assert there < found.done.value
    assert torch.equal(on_host, learner.gradient(parameters, 0, 0)[cut:].cpu())
    beside.end()


@pytest.mark.alone
def test_a_run_without_room_is_refused() -> None:
    """Two gigabytes are left on the GPU, and two workers of this want more than four."""
    config = scenario(
        cluster__workers=2, workload={"dataset": "fake", "model": "resnet50", "batch_size": 512},
        cluster__compute="measured", stop={"steps": 1},
    )  # fmt: skip
    device = torch.device(own())
    torch.accelerator.empty_cache()
    ballast = torch.empty(int(free_bytes(device) - 2e9), dtype=torch.uint8, device=device)
    try:
        with pytest.raises(ScenarioError, match=r"of the GPU's memory, and .* is free there"):
            lockstep.run(config)
    finally:
        del ballast
        torch.accelerator.empty_cache()


# NCCL refuses two processes on one GPU of a host. By NCCL_HOSTID it takes workers for those of two hosts, and
# talks over sockets: of no use to anybody, but our calls are seen where there is one GPU.


def main_with_nccl(*arguments: Any) -> None:
    def choose(places: Any, worker: int, over_tcp: bool = False) -> tuple[str, str]:
        return choosing(places, worker, over_tcp)[0], "nccl"

    def join(backend: str, device: torch.device, store: Any, rank: int, workers: int) -> None:
        os.environ["NCCL_HOSTID"] = f"worker-{rank}"
        joining(backend, device, store, rank, workers)

    choosing, process.choose = process.choose, choose
    joining, native.join = native.join, join
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    the_real_main(*arguments)


@pytest.fixture
def with_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.executor.process.main", main_with_nccl)


def nccl_run(**changes: Any) -> lockstep.Scenario:
    strategy = {
        "name": "all-reduce",
        "algorithm": "native",
        "learning_rate": 0.1,
        **changes.pop("strategy", {}),
    }
    workload = {"dataset": "digits", "model": "mlp", "batch_size": 16}
    given = {"cluster__workers": 3, "stop": {"steps": 8}, "workload": workload, "strategy": strategy}
    return scenario(**(given | changes))


@on_cuda
@pytest.mark.usefixtures("with_nccl")
@pytest.mark.parametrize("strategy", [{}, {"buckets": 3}, {"optimizer": "adam"}, {"codec": "bf16"}], ids=str)
@pytest.mark.parametrize("compute", ["measured", "constant"])
def test_nccl_sums_as_the_simulator_does(strategy: dict[str, Any], compute: str) -> None:
    config = nccl_run(strategy=strategy)
    predicted = lockstep.simulate(config)
    changes = {"cluster__compute": "measured"} if compute == "measured" else {}
    measured = lockstep.run(nccl_run(strategy=strategy, **changes))
    are_near(measured.parameters, predicted.parameters, has_edges({"name": "all-reduce", **strategy}))
    assert measured.metrics["updates"] == 8
    sums = measured.records[measured.records["event"] == "collective"]
    assert sums["end"].iloc[0] - sums["start"].iloc[0] < 1  # communicators are made before


@on_cuda
@pytest.mark.usefixtures("with_nccl")
@pytest.mark.parametrize("stop", [{"time": "1 s"}, {"target_accuracy": 0.5, "steps": 2000}], ids=str)
def test_workers_leave_nccl_together(stop: dict[str, Any]) -> None:
    result = lockstep.run(nccl_run(stop=stop, strategy={"learning_rate": 0.2}))
    updates = result.records[result.records["event"] == "update"]
    assert updates.groupby("node")["version"].max().nunique() == 1


@on_cuda
@pytest.mark.usefixtures("with_nccl")
def test_nccl_sums_of_workers_in_groups() -> None:
    """Two stages of two workers each: a group of its own for each stage."""
    config = nccl_run(cluster__workers=4, parallelism={"pipeline": 2})
    are_near(lockstep.run(config).parameters, lockstep.simulate(config).parameters, False)


@on_cuda
@pytest.mark.usefixtures("with_nccl")
def test_a_worker_that_dies_in_nccl_ends_the_run_and_the_records_are_kept(tmp_path: Path) -> None:
    slow = {"time": {"distribution": "constant", "value": "50 ms"}}
    config = nccl_run(stop={"time": "5 min"}, cluster__compute=slow)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            lockstep.run(config, deadline=20, out=tmp_path / "out")
        except BaseException as error:
            caught.append(error)

    running = threading.Thread(target=run)
    running.start()
    wait_until_on_disk(tmp_path / "out", update={0, 1, 2})
    workers = sorted(multiprocessing.active_children(), key=lambda process: process.pid or 0)
    assert len(workers) == 3
    os.kill(workers[1].pid or 0, signal.SIGKILL)
    since = time.monotonic()
    running.join(HANGS)
    assert len(caught) == 1
    assert isinstance(caught[0], RunFailed), caught
    assert str(caught[0]) == "worker 1 (rank 1) died: killed by SIGKILL"
    assert time.monotonic() - since < 30
    assert caught[0].records is not None
    assert nodes(caught[0].records, "update") == {0, 1, 2}
    assert not multiprocessing.active_children()
