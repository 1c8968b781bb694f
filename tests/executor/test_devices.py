"""Which device a worker computes on; and, where there is a GPU, that it does."""

import threading

import numpy as np
import pytest
import torch

import lockstep
from lockstep.calibration import cores
from lockstep.executor import collect, devices, native
from lockstep.executor.backward import Beside
from lockstep.executor.devices import Place, choose, sharing
from lockstep.job.arithmetic import OnTensors
from lockstep.job.node import Node
from lockstep.scenarios import ScenarioError
from tests.support.nodes import at_once, real_nodes
from tests.support.scenarios import scenario
from tests.support.worlds import learning

GPUS = torch.cuda.device_count()


def on(host: str, gpus: int) -> Place:
    """A process that sees all of a host's GPUs."""
    return Place(host, tuple(f"{host}-{number}" for number in range(gpus)))


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([0, 0], [("cpu", "gloo")] * 2),
        ([2, 2], [("cuda:0", "nccl"), ("cuda:1", "nccl")]),
        ([1, 1, 1], [("cuda:0", "gloo")] * 3),  # three share one: NCCL wants one each
        ([2, 2, 2], [("cuda:0", "gloo"), ("cuda:1", "gloo"), ("cuda:0", "gloo")]),
    ],
)
def test_workers_of_one_host(gpus: list[int], expected: list[tuple[str, str]]) -> None:
    places = [on("host", count) for count in gpus]
    assert [choose(places, worker) for worker in range(len(places))] == expected


def test_gpus_are_counted_host_by_host() -> None:
    places = [on("a", 2), on("b", 1), on("a", 2)]
    assert [choose(places, worker) for worker in range(3)] == [
        ("cuda:0", "nccl"),
        ("cuda:0", "nccl"),
        ("cuda:1", "nccl"),
    ]
    assert choose([on("a", 1), on("b", 0)], 1) == ("cpu", "gloo")


def test_a_gpu_is_told_by_its_uuid_and_not_by_its_index() -> None:
    """One GPU for each task, as Slurm gives them: all see one, and each another."""
    places = [Place("a", (f"GPU-{number}",)) for number in range(4)]
    assert [choose(places, worker) for worker in range(4)] == [("cuda:0", "nccl")] * 4
    places[3] = places[1]
    assert choose(places, 3) == ("cuda:0", "gloo")
    assert [sharing(places, worker) for worker in range(4)] == [[0], [1, 3], [2], [1, 3]]
    assert sharing([on("a", 0)] * 2, 0) == []


def test_other_makers_gpus_have_collectives_of_their_own() -> None:
    """As torch names them; of a kind that has none, and of two kinds, workers sum over the CPU."""
    kinds = {"xpu": "xccl", "privateuseone": "gloo"}
    for kind, backend in kinds.items():
        places = [Place("a", ("one", "two"), kind)] * 2
        assert [choose(places, worker) for worker in range(2)] == [(f"{kind}:{n}", backend) for n in range(2)]
    mixed = [Place("a", ("one",)), Place("b", ("two",), "xpu")]
    assert [choose(mixed, worker) for worker in range(2)] == [("cuda:0", "gloo"), ("xpu:0", "gloo")]


def test_nccl_is_told_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it makes its communicators at once, and not on the clock."""
    told: list[dict[str, object]] = []
    monkeypatch.setattr(native.dist, "init_process_group", lambda backend, **how: told.append(how))
    for backend in ("nccl", "gloo"):
        native.join(backend, torch.device("cuda:1"), native.dist.HashStore(), 0, 2)
    assert told[0].pop("device_id") == torch.device("cuda:1")
    assert "device_id" not in told[1]


def test_each_thread_says_which_gpu_it_computes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, object]] = []
    note = lambda what: lambda device: said.append((what, device))  # noqa: E731
    monkeypatch.setattr(torch.accelerator, "set_device_index", note("set"))
    monkeypatch.setattr(torch.accelerator, "synchronize", note("settled"))
    devices.use(torch.device("cuda:1"))
    devices.settle(torch.device("cuda:1"))
    for quiet in (devices.use, devices.settle):
        quiet(torch.device("cpu"))
    assert said == [("set", 1), ("settled", torch.device("cuda:1"))]
    threads: list[str] = []
    name = lambda device: threads.append(threading.current_thread().name)  # noqa: E731
    monkeypatch.setattr("lockstep.executor.backward.use", name)
    beside = Beside(torch.device("cpu"))
    beside.backward(lambda ready: torch.zeros(1), [], lambda: 0.0).done.block()
    beside.end()
    assert [thread.startswith("backward") for thread in threads] == [True]


@pytest.mark.parametrize("wanted", ["auto", "cpu"])
def test_a_run_is_evaluated_on_the_device(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(collect, "build", lambda *given: told.append(given[-1]))
    monkeypatch.setattr(devices, "visible", lambda wanted: ("GPU-1",) * (wanted != "cpu"))
    monkeypatch.setattr(devices, "kind", lambda wanted: "cuda" if wanted != "cpu" else "cpu")
    collect.evaluator(learning(cluster__device=wanted))
    assert told == ["cuda:0" if wanted == "auto" else "cpu"]


@pytest.mark.skipif(GPUS > 0, reason="there is a GPU")
def test_a_profile_made_with_a_gpu_says_nothing_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "visible", lambda: ("GPU-1",))
    assert cores.measure(learning().workload).settings == {}


@pytest.mark.skipif(GPUS > 0, reason="there is a GPU")
def test_a_gpu_that_is_asked_for_has_to_be_there() -> None:
    with pytest.raises(ScenarioError, match=r"cluster\.device: must be auto or cpu: there is no GPU here"):
        lockstep.run(scenario(cluster__device="cuda"))
    with pytest.raises(
        ScenarioError, match=r"cluster\.servers\.device: must be auto or cpu: there is no GPU"
    ):
        lockstep.run(scenario(cluster__servers={"device": "cuda"}))
    assert lockstep.simulate(scenario(cluster__servers={"device": "cuda"})).metrics["samples"]
    assert devices.visible("cpu") == ()


def test_an_update_on_a_gpu_has_been_made_when_it_is_recorded() -> None:
    """And not when the GPU was told to make it; a server's is no work of a worker."""
    with real_nodes(learning(cluster__workers=1)) as (_, server):
        order: list[str] = []
        arithmetic = OnTensors(server.arithmetic.initial)
        arithmetic.finish = lambda: order.append("waited")
        node = Node(server.port.plan, 1, server.port, server.recorder, server.ending, arithmetic, None, 1)
        assert at_once(node.apply(lambda: order.append("told"), 8)) is None
        assert order == ["told", "waited"]
        assert server.recorder.frame().empty


def gpu_run(strategy: dict[str, object], workers: int):
    return scenario(
        cluster__workers=workers, strategy={"learning_rate": 0.1, **strategy}, stop={"steps": 4},
        workload={"dataset": "digits", "model": "mlp", "batch_size": 16},
    )  # fmt: skip


@pytest.mark.skipif(GPUS < 1, reason="no GPU on this machine")
@pytest.mark.parametrize("name", ["synchronous", "asynchronous", "downpour", "all-reduce"])
def test_workers_share_a_gpu(name: str) -> None:
    result = lockstep.run(gpu_run({"name": name}, workers=2 * GPUS))
    assert result.metrics["samples"] == 2 * GPUS * 4 * 16


@pytest.mark.skipif(GPUS < 1, reason="no GPU on this machine")
def test_a_gpu_and_the_simulator_agree() -> None:
    config = gpu_run({"name": "synchronous"}, workers=2)
    predicted, measured = lockstep.simulate(config), lockstep.run(config)
    assert np.allclose(predicted.parameters, measured.parameters, atol=1e-4)


@pytest.mark.skipif(GPUS < 2, reason="NCCL wants a GPU per worker, and here are fewer than two")
def test_nccl_all_reduce() -> None:
    config = gpu_run({"name": "all-reduce", "algorithm": "native"}, workers=2)
    predicted, measured = lockstep.simulate(config), lockstep.run(config)
    assert np.allclose(predicted.parameters, measured.parameters, atol=1e-4)
