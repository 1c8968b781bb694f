"""Measured gradients in parts: each is there as soon as the backward pass has made it, with the same bits."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lockstep
from lockstep.calibration.compute import a_few
from lockstep.executor import process
from lockstep.executor.backward import Beside, Part
from lockstep.executor.devices import to_device, to_host
from lockstep.executor.launch import RunFailed
from lockstep.executor.running import run_to_end
from lockstep.job.node import Node
from lockstep.strategies.parts import cut
from lockstep.workloads import build, deterministic_threads, models
from lockstep.workloads.classifier import Classifier
from tests.support.commands import HANGS, Command, until, wait_until_on_disk
from tests.support.nodes import real_nodes
from tests.support.scenarios import scenario

pytestmark = pytest.mark.real

MODELS = {
    "mlp": {"dataset": "digits", "model": "mlp"},
    "cnn": {"dataset": "digits", "model": "cnn"},
    "resnet18": {"dataset": "fake", "model": "resnet18"},
    "mobilenet_v3_small": {"dataset": "fake", "model": "mobilenet_v3_small"},
    "logistic": {"problem": "logistic"},
    "quadratic": {"problem": "quadratic"},
}


def measured(**changes: Any) -> lockstep.Scenario:
    return scenario(
        **{"cluster__workers": 1, "cluster__compute": "measured", "stop": {"steps": 4}, **changes}
    )


def awaited(awaitable: Any, node: Node) -> Any:
    found = []

    async def program() -> None:
        found.append(await awaitable)

    run_to_end(program(), node.port)
    return found[0]


@pytest.mark.parametrize("name", list(MODELS))
def test_the_parts_are_those_of_the_gradient(name: str) -> None:
    config = measured(workload={"batch_size": 4, **MODELS[name]})
    with deterministic_threads(), real_nodes(config) as nodes:
        node, other = nodes[0], build(config.workload, 1, config.seed)
        parameters = node.initial_parameters()
        for step, buckets in enumerate([1, 3, 50]):
            parts = node.backward(parameters, cut(len(parameters), [1] * buckets))
            values = [awaited(part, node) for part in reversed(parts)][::-1]
            expected = other.gradient(parameters, 0, step)
            assert torch.equal(torch.cat(values), expected)
            assert node.loss == other.loss
            parameters = parameters - 0.1 * expected


class _Held(torch.autograd.Function):
    """The identity; its backward pass waits for a word."""

    word = threading.Event()

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        assert _Held.word.wait(HANGS)
        return gradient


def two_layers(node: Node, between: Callable[[Tensor], Tensor]) -> None:
    """Let something happen between the two layers of a node's mlp."""
    learner = node.port.learner
    assert isinstance(learner, Classifier)
    learner.module.insert(2, Between(between))  # type: ignore[operator]


class Between(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def test_the_last_layer_s_part_is_there_before_the_first_layer_s_is_computed() -> None:
    with real_nodes(measured(workload=MODELS["mlp"])) as nodes:
        node, _Held.word = nodes[0], threading.Event()
        two_layers(node, _Held.apply)
        parameters = node.initial_parameters()
        first = 64 * 64 + 64  # weights and biases of the first layer
        slices = [slice(0, first), slice(first, len(parameters))]
        front, back = node.backward(parameters, slices)
        assert awaited(back, node).shape == (650,)  # the pass is held up behind it
        assert not front.event.due()
        assert node.step == 1
        _Held.word.set()
        assert awaited(front, node).shape == (first,)


def test_every_part_is_waited_for_where_it_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is due already: on a GPU, whoever reads it has to wait for what has been begun."""
    blocked = []

    def block(self: Part, real: Callable[[Part], None] = Part.block) -> None:
        blocked.append(self)
        real(self)

    monkeypatch.setattr(Part, "block", block)
    with real_nodes(measured(workload=MODELS["mlp"])) as nodes:
        node, parameters = nodes[0], nodes[0].initial_parameters()
        front, back = node.backward(parameters, [slice(0, 4160), slice(4160, len(parameters))])
        awaited(back, node)
        assert until(front.event.due, HANGS)
        assert not node.arrived("word")  # what is due may happen meanwhile
        awaited(front, node)
        assert blocked == [back.event, front.event]


def test_a_worker_that_computes_beside_its_program_is_not_idle() -> None:
    """Were it, a run would end while one of its activities goes on."""
    slow = {"time": {"distribution": "constant", "value": "2 s"}}
    with real_nodes(scenario(cluster__workers=1, cluster__compute=slow, strategy="gossip")) as nodes:
        node, port = nodes[0], nodes[0].port

        async def computing() -> None:
            await node.gradient_unless(node.initial_parameters(), "never")

        async def waiting() -> None:
            await node.receive("never")

        node.spawn(computing())
        assert until(lambda: port._blocked, HANGS)
        assert port.idle() is None
        assert until(lambda: not port.activities.alive(), HANGS)
        assert port.idle() == 0
        node.spawn(waiting())
        assert until(lambda: port._blocked, HANGS)
        assert port.idle() == 0
        port._closing = True
        assert until(lambda: not port.activities.alive(), HANGS)  # or sockets are closed under it


def test_a_failure_in_the_pass_is_raised_where_a_part_is_awaited() -> None:
    def broken(gradient: Tensor) -> None:
        raise LookupError("of the first layer")

    def breaking(x: Tensor) -> Tensor:
        x.register_hook(broken)
        return x

    with real_nodes(measured(workload=MODELS["mlp"])) as nodes:
        node = nodes[0]
        two_layers(node, breaking)
        parameters = node.initial_parameters()
        front, back = node.backward(parameters, [slice(0, 4160), slice(4160, len(parameters))])
        assert awaited(back, node).shape == (650,)
        with pytest.raises(LookupError, match="of the first layer") as caught:
            awaited(front, node)
        assert "broken" in [frame.name for frame in caught.traceback]


def test_the_gradient_of_parameters_that_are_not_used_is_0() -> None:
    """Else it would be what the memory held before."""
    config = measured(workload=MODELS["mlp"])
    learner = build(config.workload, 1, config.seed)
    assert isinstance(learner, Classifier)
    counts = [weight.numel() for weight in learner.module.parameters()]
    unused = [weight.numel() for weight in learner.module[3].parameters()]  # type: ignore[index, operator]
    learner.module[3] = torch.nn.Identity()  # type: ignore[index, operator]
    gradient = learner.gradient(learner.initial(), 0, 0)
    start = sum(counts[: counts.index(unused[0])])
    assert not gradient[start : start + sum(unused)].any()
    assert gradient[:start].any()


def test_one_gradient_after_the_other() -> None:
    beside, gradient, seen = Beside(torch.device("cpu")), torch.arange(4.0), []

    def compute(ready: Any) -> Tensor:
        seen.append(threading.current_thread())
        return gradient

    for _ in range(3):
        found = beside.backward(compute, [1], lambda: 0.5)
        found.parts[0].block()
        assert found.gradient is gradient
        found.done.block()
        assert found.done.value == 0.5
    assert len(set(seen)) == 1
    assert seen[0] is not threading.current_thread()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet18"])
def test_on_a_gpu(name: str) -> None:
    config, device = measured(workload=MODELS[name]), torch.device("cuda:0")
    learner, beside = build(config.workload, 1, config.seed, "cuda:0"), Beside(device)
    parameters = learner.initial()
    for step in range(3):
        slices = cut(len(parameters), [1] * 4)
        found = beside.backward(
            lambda ready, at=parameters, n=step: learner.gradient(at, 0, n, ready),
            [part.start for part in slices], lambda: 0.0,
        )  # fmt: skip
        pieces = []
        for part, where in reversed([*zip(found.parts, slices, strict=True)]):
            part.block()
            pieces.insert(0, to_host(found.gradient[where]))
        host = torch.cat(pieces)
        whole = learner.gradient(parameters, 0, step)
        assert torch.equal(host, whole.cpu())
        assert torch.equal(to_device(host, device), whole)
        parameters = parameters - 0.1 * whole


def test_without_a_gpu_nothing_is_copied() -> None:
    vector = torch.arange(3.0)
    assert to_host(vector) is to_device(vector, torch.device("cpu")) is vector


# ------------------------------------------------------------------ in real runs


ALL_REDUCE = {"name": "all-reduce", "algorithm": "native", "learning_rate": 0.1, "momentum": 0.9}


def run(strategy: dict[str, Any], **changes: Any) -> lockstep.Result:
    return lockstep.run(measured(cluster__workers=2, workload=MODELS["cnn"], strategy=strategy, **changes))


@pytest.mark.parametrize(
    "strategy",
    [ALL_REDUCE, {**ALL_REDUCE, "algorithm": "ring"}, {"name": "synchronous", "learning_rate": 0.1}],
)
def test_a_run_in_parts_ends_with_the_bits_of_one_at_once(strategy: dict[str, Any]) -> None:
    """For two workers: the sum of two numbers does not depend on the parts that they are in."""
    parts = "chunks" if strategy["name"] == "synchronous" else "buckets"
    whole, cut_up = run(strategy), run({**strategy, parts: 5})
    assert np.array_equal(whole.parameters, cut_up.parameters)
    predicted = lockstep.simulate(
        scenario(cluster__workers=2, workload=MODELS["cnn"], strategy=strategy, stop={"steps": 4})
    )
    assert np.array_equal(predicted.parameters, whole.parameters)
    gradients = cut_up.records[cut_up.records["event"] == "gradient"]
    assert gradients.groupby("node")["version"].apply(list).tolist() == [[0, 1, 2, 3]] * 2
    assert (gradients["end"] > gradients["start"]).all()


the_real_main = process.main


def main_with_a_mistake(*arguments: Any) -> None:
    """A process of the run, whose model fails in a backward pass beside the program."""
    mlp = models.OWN["mlp"]

    def failing(gradient: Tensor) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise LookupError("in the backward pass")

    def hooked(x: Tensor) -> Tensor:
        x.register_hook(failing)
        return x

    def build_it(*shape: Any) -> torch.nn.Module:
        module = mlp(*shape)
        module.insert(2, Between(hooked))  # type: ignore[operator]
        return module

    models.OWN["mlp"] = build_it
    the_real_main(*arguments)


def test_a_failure_in_the_other_thread_ends_the_run_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lockstep.executor.process.main", main_with_a_mistake)
    with pytest.raises(RunFailed, match=r"died: LookupError: in the backward pass") as caught:
        lockstep.run(
            measured(workload=MODELS["mlp"], strategy={**ALL_REDUCE, "buckets": 2}, stop={"steps": 9})
        )
    assert "in failing" in caught.value.details
    assert "in all_reduce" in caught.value.details  # and where the strategy waited


@pytest.fixture
def endless(tmp_path: Any) -> Iterator[Command]:
    command = Command(
        tmp_path, "--set", "cluster.compute=measured", "--set", "workload={dataset: digits, model: cnn}",
        "--set", "strategy={name: all-reduce, algorithm: native, buckets: 4}",
    )  # fmt: skip
    try:
        command.wait_until_under_way()
        yield command
    finally:
        command.kill()


def test_ctrl_c_ends_it(endless: Command) -> None:
    wait_until_on_disk(endless.out, gradient={0, 1, 2})
    os.killpg(endless.process.pid, signal.SIGINT)
    status, said = endless.ends()
    assert (status, said.splitlines()[-1]) == (130, "error: interrupted")
    assert set(endless.kept().query("event == 'gradient'")["node"]) == {0, 1, 2}


def test_predictions_of_measured_times_know_the_backward_pass() -> None:
    """Parts of a data set's gradient travel early in both engines; a problem's come as a whole."""
    data = lockstep.load("quickstart", ["cluster.compute=measured", "cluster.stragglers=[]"])
    problem = lockstep.load("quickstart", ["workload={problem: logistic}", "stop={steps: 1}"])
    assert 0 < a_few(data.workload).backward < 1
    assert a_few(problem.workload).backward == 0
