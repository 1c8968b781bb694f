"""Servers as key-value stores: rows that mini-batches touch, pushed and pulled by their numbers."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import lockstep
from lockstep import ScenarioError
from lockstep.workloads.embedding import Embedding, Touched
from tests.support.nightly import drawn
from tests.support.scenarios import scenario

TABLE = {"problem": "embedding", "dimension": 1600, "width": 4, "batch_size": 16}
NETWORK = {"bandwidth": "20 MB/s", "latency": "1 ms"}


def config(codec: str = "rows", **changes: Any) -> lockstep.Scenario:
    given = changes.pop("strategy", {"name": "synchronous"})
    usual: dict[str, Any] = {"workload": TABLE, "cluster__network": NETWORK, "stop": {"steps": 30},
                             "cluster__servers": 2}  # fmt: skip
    return scenario(strategy={"learning_rate": 2.0, **given, "codec": codec}, **{**usual, **changes})


def test_a_gradient_touches_the_rows_that_it_is_said_to() -> None:
    """And does not depend on others."""
    workload = config().workload
    learner, touched = Embedding(workload, 3, 1, "cpu"), Touched(workload, 3, 1)
    parameters = learner.initial()
    gradient = learner.gradient(parameters, 2, 5).view(-1, 4)
    rows = touched(2, 5)
    assert gradient.abs().sum(1).nonzero().flatten().tolist() == rows
    changed = torch.full((400, 4), torch.nan)
    changed[rows] = parameters.view(-1, 4)[rows]
    assert torch.equal(learner.gradient(changed.flatten(), 2, 5).view(-1, 4), gradient)


def test_the_gradient_is_that_of_autograd() -> None:
    learner = Embedding(config().workload, 1, 1, "cpu")
    parameters = learner.initial().requires_grad_()
    rows, labels = learner._rows[learner._batches(0, 3)], learner._labels[learner._batches(0, 3)]
    logits = (parameters.view(-1, 4)[rows[:, 0]] * parameters.view(-1, 4)[rows[:, 1]]).sum(1)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    (expected,) = torch.autograd.grad(loss, parameters)
    assert torch.allclose(learner.gradient(parameters.detach(), 0, 3), expected, atol=1e-8)


@pytest.mark.parametrize(
    ("strategy", "servers"),
    [
        ({"name": "synchronous"}, 3),
        ({"name": "synchronous", "momentum": 0.9, "learning_rate": 0.3, "chunks": 3}, 2),
        ({"name": "synchronous", "optimizer": "adam", "learning_rate": 0.01}, 1),
    ],
)
def test_in_step_it_is_the_dense_run_bit_for_bit(strategy: dict[str, Any], servers: int) -> None:
    """Gradients are zero elsewhere, and what a mini-batch reads is new; even where shards cut rows."""
    rows, dense = (
        lockstep.simulate(config(codec, strategy=strategy, cluster__servers=servers))
        for codec in ("rows", "none")
    )
    assert np.array_equal(rows.parameters, dense.parameters)
    assert rows.metrics["bytes_sent"] < 0.3 * dense.metrics["bytes_sent"]


def test_a_table_that_is_touched_whole_travels_whole() -> None:
    """Eight rows, all in every mini-batch: the dense run, and the numbers of rows besides."""
    small = TABLE | {"dimension": 32, "batch_size": 512}
    rows, dense = (lockstep.simulate(config(codec, workload=small)) for codec in ("rows", "none"))
    assert np.array_equal(rows.parameters, dense.parameters)
    messages = rows.records[rows.records["event"] == "message"]
    assert {*messages.loc[messages["kind"] == "push", "nbytes"]} == {4 * (1 + 4 + 16 + 4)}
    answers = messages.loc[messages["kind"] == "parameters", "nbytes"]
    assert answers.value_counts().to_dict() == {4 * 16: 2 * 4, 4 * (1 + 4 + 16): 2 * 4 * 30}


def test_bytes_are_those_of_the_rows_touched() -> None:
    job = config(cluster__servers=1, cluster__workers=1)
    touched = Touched(job.workload, 1, job.seed)
    counts = [len(touched(0, step)) for step in range(31)]
    records = lockstep.simulate(job).records
    pushes = records[(records["event"] == "message") & (records["kind"] == "push")].sort_values("start")
    expected = [4 * (1 + n + 4 * n + following) for n, following in pairwise(counts)]
    assert pushes["nbytes"].tolist() == expected


ANSWER = ["asynchronous", "ssp-blocking", "soft-sync", "compute-groups", "dc-asgd"]


@pytest.mark.parametrize("name", drawn(ANSWER, one_in=5))
def test_it_learns_with_every_server_that_answers_a_push(name: str) -> None:
    job = config(strategy={"name": name}, stop={"steps": 600})
    assert lockstep.simulate(job).metrics["loss"] < 0.66


def test_late_gradients_that_are_dropped_still_ask() -> None:
    job = config(strategy={"name": "backup-workers"}, cluster__servers=1,
                 cluster__stragglers=[{"worker": 0, "slowdown": 1.5}])  # fmt: skip
    result = lockstep.simulate(job)
    assert result.metrics["dropped"] > 0
    assert np.isfinite(result.parameters).all()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"workload": {"problem": "logistic"}}, "rows needs workload.problem: embedding"),
        ({"strategy": {"name": "ssp"}}, "rows needs a worker loop that is answered after every gradient"),
        ({"strategy": {"name": "agn"}}, "rows needs a worker loop that is answered after every gradient"),
        ({"strategy": {"name": "synchronous", "answer_codec": "fp16"}}, "sent as it is"),
    ],
)
def test_refusals(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        lockstep.simulate(config(**changes))


@pytest.mark.parametrize(
    ("changes", "problem"), [({"dimension": 30}, "must be a multiple of 8"), ({"density": 0.5}, "must be 1")]
)
def test_a_table_that_is_none_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        config(workload=TABLE | changes)


@pytest.mark.real
def test_real_servers_are_stores_too() -> None:
    job = config(stop={"steps": 10}, cluster__workers=2)
    predicted, measured = lockstep.simulate(job), lockstep.run(job)
    assert np.array_equal(predicted.parameters, measured.parameters)
    assert predicted.metrics["bytes_sent"] == measured.metrics["bytes_sent"]
