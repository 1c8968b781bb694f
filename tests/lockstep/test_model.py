"""`lockstep model`: layers, cuts, work and depth."""

import csv
import io
import json
from math import ceil, log2
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.job.plan import Plan
from lockstep.scenarios import Data, ScenarioError
from lockstep.workloads.depth import depth
from tests.support.command_line import Lockstep, fine
from tests.support.tasks import document, task, written


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


SPLIT = "pipelines/uneven-devices"


@pytest.mark.parametrize(
    ("changes", "stages", "last", "said"),
    [
        ([], [0, 1, 2, 3], ["5", "11", "17", "23"], "Cut by flops"),
        (["parallelism.cut={by: time}"], [0, 1, 2, 3], ["7", "15", "19", "23"], "Cut by time"),
        (["parallelism.cut=[1, 2, 20]"], [0, 1, 2, 3], ["0", "1", "19", "23"], "Cut before layers 1, 2, 20"),
        (
            ["parallelism={pipeline: 2, chunks: 2, order: interleaved}"],
            [0, 1, 0, 1],
            ["5", "11", "17", "23"],
            "Cut by flops",
        ),
    ],
)
def test_a_scenario_is_cut_where_its_parallelism_says(
    changes: list[str], stages: list[int], last: list[str], said: str, command: Lockstep
) -> None:
    found = lockstep.model(SPLIT, changes)
    assert [stage["stage"] for stage in found["stages"]] == stages
    assert [stage["last"] for stage in found["stages"]] == last
    assert [row["stage"] for row in found["layers"] if row["layer"] in last] == stages
    pieces = Plan.of(lockstep.load(SPLIT, [*changes, "sweep={}"])).pieces
    assert [stage["layers"] for stage in found["stages"]] == [
        piece.layers.stop - piece.layers.start for piece in pieces
    ]
    assert said in fine(command("model", SPLIT, *(f"--set={change}" for change in changes)))
    other = lockstep.model(SPLIT, changes, stages=2)  # what is asked for comes first
    assert [stage["layers"] for stage in other["stages"]] == [12, 12]


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
        (["mlp", "--stages", "3"], "error: --stages: must be at most 2, as many as there are layers, not 3"),
        (["resnet18", "--set", "workload.batch_size=1"], "cannot be trained on cifar10 in batches of 1"),
        (["mlp", "--stages", "0"], "invalid value for '--stages': must be at least 1, not '0' (see "),
        (["mlp", "--stages", "x"], "invalid value for '--stages': must be a whole number, not 'x' (see "),
        (
            ["mlp", "--by", "luck", "--stages", "2"],
            "value for '--by': must be one of 'flops', 'parameters', 'time', 'memory', not 'luck' (see ",
        ),
        (["mlp", "--by", "time"], "--by: needs --stages"),
        (
            ["pipelines/uneven-devices", "--set", "parallelism.cut=[1, 2, 24]"],
            "parallelism.cut=[1, 2, 24]: parallelism.cut: must be numbers of layers that rise, from 1 to 23",
        ),
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


def test_of_a_model_that_cannot_be_taken_apart_the_whole_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Lockstep
) -> None:
    """Such as one whose loss gives it more than a tensor: it can be run, but not split."""
    monkeypatch.chdir(tmp_path)
    loss = "lambda model, batch: nn.functional.cross_entropy(model(input=batch[0]), batch[1])"
    written(tmp_path, task(loss=loss))
    (tmp_path / "my.yaml").write_text(json.dumps(document()))
    found = json.loads(fine(command("model", "my.yaml", "--json")))
    assert found["parameters"] == 6
    assert found["flops"] == 2 * 2 * 2 * 2  # a multiply-add each forward, and for the weights' gradient
    assert [layer["layer"] for layer in found["layers"]] == ["all"]
    assert "taken apart" in found["whole"]
    assert "so it cannot be split. A gradient takes 16 FLOP a sample" in fine(command("model", "my.yaml"))
    assert command("model", "my.yaml", "--stages", "2").status == 2
