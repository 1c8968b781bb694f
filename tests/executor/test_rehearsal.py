"""What is done before the clock starts, so that no first update on a GPU loads kernels on the clock."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import lockstep
from lockstep.executor.rehearsal import rehearse
from lockstep.job.node import Node
from lockstep.scenarios.loading import made
from lockstep.strategies import Message
from lockstep.strategies.own_step import own_step
from lockstep.strategies.parameter_server import Shard
from lockstep.strategies.updates import sum_of
from tests.support.nodes import at_once, real_nodes
from tests.support.tasks import document, task, written

SERVED: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adam": {"optimizer": "adam", "weight_decay": 0.1, "max_grad_norm": 1.0},
    "deltas": {"name": "downpour", "server_optimizer": "adam", "codec": "1-bit"},
    "a correction": {"name": "asynchronous", "correction": "dc-asgd", "codec": "int8"},
    "a mean of blocks": {"name": "bmuf"},
}


class Operations(TorchDispatchMode):
    """Which of torch's operations were done, on what types."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[Any, ...]] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        self.seen.add((operation, *(each.dtype for each in given if isinstance(each, torch.Tensor))))
        return operation(*given, **(options or {}))


def operations(do: Callable[[], object]) -> set[tuple[Any, ...]]:
    with Operations() as mode:
        do()
    return mode.seen


def rehearsed(node: Node) -> set[tuple[Any, ...]]:
    before = node.rng.getstate(), node.clock.now
    found = operations(lambda: rehearse(node.port.plan, node))
    assert before[0] == node.rng.getstate(), "the run draws as it would without"
    return found


@pytest.mark.parametrize("name", SERVED)
def test_a_servers_first_updates_do_nothing_new(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(tmp_path, task()))
    config = made(document(strategy={"name": "synchronous", **SERVED[name]}))
    with real_nodes(config) as nodes:
        server = nodes[-1]
        known = rehearsed(server)
        rule = server.port.plan.strategy.rule(config.strategy.parameters)
        shard = Shard(server, rule)
        body = server.arithmetic.encode(shard.parameters, rule.codec, 0)
        shard.pulled = {worker: dict.fromkeys(range(2), shard.parameters) for worker in range(2)}

        def update() -> None:
            at_once(shard.apply([Message("push", worker, body, shard.version) for worker in range(2)], 2))

        assert operations(lambda: (update(), update())) <= known
        assert not torch.equal(shard.parameters, server.initial_parameters())


def test_a_relays_first_sum_does_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written(tmp_path, task()))
    config = made(document(cluster={**document()["cluster"], "servers": {"hierarchy": {"groups": 1}}}))
    with real_nodes(config) as nodes:
        (relay,) = (node for node in nodes if node.role.kind == "relay")
        known, body = rehearsed(relay), relay.initial_parameters()
        assert operations(lambda: sum_of([body, body])) <= known


@pytest.mark.parametrize("name", ["diloco", "d-psgd", "fsdp"])
def test_a_workers_first_own_steps_do_nothing_new(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(tmp_path, task()))
    config = made(document(strategy={"name": name, "optimizer": "adamw"}))
    with real_nodes(config) as nodes:
        node, gradient = nodes[0], nodes[0].initial_parameters()
        known = rehearsed(node)
        optimizer = node.port.plan.strategy.own_optimizer(config.strategy.parameters)
        assert optimizer is not None

        def steps() -> None:
            state = optimizer.initial
            for _ in range(2):
                step, state = at_once(own_step(node, optimizer, gradient, state, gradient))
                _ = gradient + step

        assert operations(steps) <= known


ORDER = """
import multiprocessing
import os
from lockstep.executor import native, process

def noted(module, name):
    function = getattr(module, name)
    def call(*given):
        open(f"order-{os.getpid()}", "a").write(name + chr(10))
        return function(*given)
    setattr(module, name, call)

if multiprocessing.parent_process():
    noted(native, "first_sum"), noted(process, "rehearse"), noted(process, "_start_together")
"""


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "many", "first"),
    [("synchronous", 3, []), ({"name": "all-reduce", "algorithm": "native"}, 2, ["first_sum"])],
)
def test_every_process_rehearses_before_the_clock_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: Any, many: int, first: list[str]
) -> None:
    """What the module of the task does is done in each of them."""
    monkeypatch.chdir(written(tmp_path, task(more="import notes")))
    written(tmp_path, ORDER, "notes")
    lockstep.run(made(document(strategy=strategy)))
    orders = [file.read_text().split() for file in tmp_path.glob("order-*")]
    assert orders == [[*first, "rehearse", "_start_together"]] * many
