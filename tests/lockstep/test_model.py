"""`lockstep model`: layers, cuts, work and depth."""

import csv
import io
import json
from math import ceil, log2
from typing import Any

import pytest

import lockstep
from lockstep.scenarios import Data, ScenarioError
from lockstep.workloads.depth import depth
from tests.support.command_line import Lockstep, fine


def levels(count: int) -> int:
    return ceil(log2(count))


def test_the_depth_of_a_perceptron_by_hand() -> None:
    found = depth(Data.model_validate({"dataset": "digits", "model": "mlp", "batch_size": 32}))
    softmax = 2 * levels(10) + 4
    forward = (levels(64) + 1) + 1 + (levels(64) + 1) + softmax + (levels(32) + 1)
    backward = 1 + softmax + (levels(10) + 1) + 1 + (levels(32) + 1)
    assert found.depth == forward + backward
    products = 32 * (2 * 2 * 64 * 64 + 3 * 2 * 640)
    # ReLU, softmax and loss, there and back; and the biases' gradients
    others = 32 * (64 + 10 + 10) + 32 * (10 + 10 + 64) + 32 * (10 + 64)
    assert found.work == products + others


def test_a_larger_mini_batch_adds_work_and_hardly_depth() -> None:
    small, large = (
        depth(Data.model_validate({"dataset": "digits", "model": "cnn", "batch_size": size}))
        for size in (16, 64)
    )
    assert large.work == pytest.approx(4 * small.work, rel=0.02)
    assert 0 < large.depth - small.depth <= 3 * 2


def test_more_layers_add_depth() -> None:
    one, two, three = (
        lockstep.model("transformer", [f"workload.layers={count}"])["depth"] for count in (1, 2, 3)
    )
    assert three - two == two - one > 0


def test_the_command_prints_what_the_function_returns(command: Lockstep) -> None:
    arguments = ["resnet18", "--stages", "3", "--set", "workload.batch_size=8"]
    document: dict[str, Any] = json.loads(fine(command("model", *arguments, "--json")))
    assert document == lockstep.model("resnet18", ["workload.batch_size=8"], stages=3)
    rows = list(csv.DictReader(io.StringIO(fine(command("model", *arguments, "--csv")))))
    assert [row["layer"] for row in rows] == [layer["layer"] for layer in document["layers"]]
    assert [int(row["stage"]) for row in rows] == [layer["stage"] for layer in document["layers"]]
    shown = fine(command("model", *arguments))
    for word in ("layer1.0", "layer4.1", "Cut by flops", "work W", "depth D"):
        assert word in shown


def test_stages_add_up() -> None:
    found = lockstep.model("cnn", stages=3, by="parameters")
    for key in ("parameters", "flops"):
        assert sum(stage[key] for stage in found["stages"]) == found[key]
    assert sum(stage["layers"] for stage in found["stages"]) == len(found["layers"])
    assert [layer["stage"] for layer in found["layers"]] == [0, 0, 1, 2, 2]  # the most is in one layer


@pytest.mark.parametrize("name", ["gpt-2", "sizes-only", "quickstart", "strategies/downpour"])
def test_scenarios_and_workloads_have_layers(name: str) -> None:
    found = lockstep.model(name)
    assert sum(layer["parameters"] for layer in found["layers"]) == found["parameters"]


def test_a_problem_has_no_depth() -> None:
    found = lockstep.model("sizes-only", ["workload={problem: logistic}"])
    assert (found["work"], found["depth"], found["parallelism"]) == (None, None, None)
    assert len(found["layers"]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resnet180"], "no scenario, workload or model is called 'resnet180'; did you mean 'resnet18"),
        (["mlp", "--stages", "3"], "parallelism.pipeline: must be at most 2, as many as there are layers"),
        (["resnet18", "--set", "workload.batch_size=1"], "cannot be trained on cifar10 in batches of 1"),
        (["mlp", "--stages", "0"], "stages"),
        (["mlp", "--by", "luck", "--stages", "2"], "luck"),
        (["mlp", "--json", "--csv"], "--csv: cannot be printed beside --json"),
    ],
)
def test_bad_input(arguments: list[str], said: str, command: Lockstep) -> None:
    ended = command("model", *arguments)
    assert ended.status == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_the_name_of_nothing_in_python() -> None:
    with pytest.raises(ScenarioError, match="no scenario, workload or model"):
        lockstep.model("nothing-like-it")
