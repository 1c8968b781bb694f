"""What a node knows of its own training, `loss` and `epoch`: the same in both engines."""

from math import ceil, isnan
from typing import Any

import pytest

import lockstep
from lockstep import Scenario
from lockstep.executor.running import run_to_end
from lockstep.strategies import STRATEGIES, Node, Strategy
from lockstep.workloads import build, deterministic_threads
from tests.support.nodes import real_nodes
from tests.support.scenarios import scenario

DIGITS = {"dataset": "digits", "batch_size": 16}


def seen_in_both(config: Scenario, program: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """What the workers' programs return, by worker: of the simulator, and of the executor's nodes."""
    found: dict[int, Any] = {}

    async def noting(node: Node) -> None:
        found[node.index] = await program(node)

    monkeypatch.setitem(STRATEGIES, "under-test", Strategy(noting))
    lockstep.simulate(config)
    predicted, found = found, {}
    with real_nodes(config) as nodes, deterministic_threads():
        for node in nodes:
            run_to_end(noting(node), node.port)
    return predicted, found


async def every_kind_of_gradient(node: Node) -> list[str]:
    """The loss before and after each; as text, in which nan is nan."""
    losses, parameters = [node.loss], node.initial_parameters()
    while await node.next_batch_available():
        if node.step % 3 == 0:
            gradient = await node.gradient(parameters)
        elif node.step % 3 == 1:
            found = await node.gradient_unless(parameters, "enough")
            assert found is not None
            gradient = found
        else:
            half = len(parameters) // 2
            back, front = node.backward(parameters, [slice(half, len(parameters)), slice(0, half)])
            losses.append(node.loss)  # still that of the one before
            gradient = node.concatenate([await front, await back])
        losses.append(node.loss)
        parameters = parameters - 0.1 * gradient
    return list(map(repr, losses))


@pytest.mark.parametrize("form", [DIGITS, {"problem": "logistic"}, {"problem": "quadratic"}], ids=str)
def test_the_loss_is_that_of_the_last_gradient(form, monkeypatch) -> None:
    config = scenario(cluster__workers=2, workload=form, strategy="under-test", stop={"steps": 6})
    predicted, measured = seen_in_both(config, every_kind_of_gradient, monkeypatch)
    assert predicted == measured
    with deterministic_threads():
        learner = build(config.workload, workers=2, seed=config.seed)
        for worker, losses in predicted.items():
            parameters, expected = learner.initial(), ["nan"]
            for step in range(6):
                if step % 3 == 2:
                    expected.append(expected[-1])
                gradient = learner.gradient(parameters, worker, step)
                parameters = parameters - 0.1 * gradient
                expected.append(repr(learner.loss))
            assert losses == expected


async def given_up(node: Node) -> list[float]:
    async def interrupting() -> None:
        await node.sleep(0.01)
        await node.send(node.rank, "enough")

    parameters = node.initial_parameters()
    await node.gradient(parameters)
    before = node.loss
    node.spawn(interrupting())
    assert await node.gradient_unless(parameters, "enough") is None
    return [before, node.loss]


def test_a_gradient_that_was_given_up_leaves_the_loss(monkeypatch) -> None:
    slow = {"time": {"distribution": "constant", "value": "1 s"}}
    config = scenario(
        cluster__workers=1, cluster__compute=slow, workload=DIGITS, strategy="under-test", stop={"steps": 2}
    )
    for found in seen_in_both(config, given_up, monkeypatch):
        before, after = found[0]
        assert before == after > 0


async def epochs(node: Node) -> tuple[int, bool]:
    await node.gradient(node.initial_parameters())
    return node.epoch, isnan(node.loss)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (DIGITS, [ceil(360 / 16), *[ceil(359 / 16)] * 3]),
        ({**DIGITS, "batch_size": 359}, [2, 1, 1, 1]),
        ({"problem": "logistic", "batch_size": 100}, [6, 6, 6, 6]),
        ({"problem": "quadratic"}, [1, 1, 1, 1]),
        ({"parameters": 10}, [1, 1, 1, 1]),
    ],
    ids=str,
)
def test_an_epoch_is_a_pass_over_the_worker_s_own_samples(form, expected, monkeypatch) -> None:
    forms = [form] if "parameters" in form else [form, {**form, "learning": False}]
    for workload in forms:
        config = scenario(workload=workload, strategy="under-test", stop={"steps": 1})
        nothing_learned = not config.workload.learns
        for found in seen_in_both(config, epochs, monkeypatch):
            assert found == {worker: (batches, nothing_learned) for worker, batches in enumerate(expected)}


def test_uneven_shares_have_uneven_epochs(monkeypatch) -> None:
    form = {**DIGITS, "partition": {"dirichlet": 0.3}}
    config = scenario(workload=form, strategy="under-test", stop={"steps": 1})
    predicted, measured = seen_in_both(config, epochs, monkeypatch)
    assert predicted == measured
    shares = build(config.workload, 4, config.seed)._batches.shares
    assert [predicted[worker][0] for worker in range(4)] == [ceil(len(share) / 16) for share in shares]
    assert len({len(share) for share in shares}) > 1


def test_more_workers_than_samples_where_nothing_is_learned() -> None:
    config = scenario(cluster__workers=1440, workload={**DIGITS, "learning": False}, stop={"steps": 1})
    assert lockstep.simulate(config).metrics["samples"] == 1440 * 16
