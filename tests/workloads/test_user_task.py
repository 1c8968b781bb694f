"""A user's task: equal to what ships where its content is, and one clear message for each mistake."""

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import lockstep
from lockstep import scenarios
from lockstep.analysis import saved
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import made
from lockstep.workloads import build, sizes
from tests.support.scenarios import ENGINES
from tests.support.tasks import DIGITS, MINE, SHIPPED, TIED, document, key, simulated, task, written

# ------------------------------------------------------------------ one mechanism

FAMILIES: list[dict[str, Any]] = [
    {"strategy": {"name": "downpour"}},
    {"strategy": {"name": "ssp-blocking", "bound": 1, "codec": "top-k", "codec_ratio": 0.1}},
    {"strategy": {"name": "easgd"}},
    {"strategy": {"name": "all-reduce", "algorithm": "ring"}},
    {"strategy": {"name": "gossip"}},
    {"strategy": {"name": "fsdp", "units": 2}},
    {"strategy": {"name": "hogwild"}},
    {"strategy": {"name": "pipedream"}, "parallelism": {"pipeline": 2}},
    {"strategy": {"name": "all-reduce"}, "parallelism": {"pipeline": 2, "order": "zero-bubble"}},
    {"strategy": {"name": "all-reduce"}, "parallelism": {"tensor": 2}},
]


@pytest.mark.parametrize(
    "family", FAMILIES, ids=lambda family: "-".join(map(str, family["strategy"].values()))
)
def test_a_task_of_equal_content_has_the_bits_of_the_shipped_one(
    folder: Path, family: dict[str, Any]
) -> None:
    written(folder, DIGITS)
    mine, shipped = simulated(MINE, **family), simulated(SHIPPED, **family)
    assert np.array_equal(mine.parameters, shipped.parameters)
    # its held-out loss is a mean of float32, the shipped one's a sum
    columns = [name for name in shipped.records if name != "loss"]
    pd.testing.assert_frame_equal(mine.records[columns], shipped.records[columns])
    assert mine.metrics["accuracy"] == shipped.metrics["accuracy"]
    assert mine.metrics["loss"] == pytest.approx(shipped.metrics["loss"], rel=1e-6)


@pytest.mark.real
def test_real_processes_import_it(folder: Path) -> None:
    """Beside the file, while the run is started from elsewhere."""
    written(folder / "there", DIGITS)
    (folder / "there" / "mine.yaml").write_text(json.dumps(document(workload=MINE)))
    scenario = lockstep.load("there/mine.yaml")
    real, simulated = lockstep.run(scenario), lockstep.simulate(scenario)
    assert np.array_equal(real.parameters, simulated.parameters)


def test_samples_one_by_one_are_the_tensors(folder: Path) -> None:
    """A data set that is no TensorDataset is collated: the same batches."""
    text = DIGITS.replace("data=TensorDataset", "data=lambda x, y: list(zip(x, y))")
    written(folder, DIGITS)
    written(folder, text, "other")
    whole, single = (simulated(MINE | {"task": f"{name}:digits"}) for name in ("my_task", "other"))
    assert np.array_equal(whole.parameters, single.parameters)


def test_from_python_without_a_file() -> None:
    cluster = document()["cluster"]
    scenario = lockstep.scenario(
        points,
        {"n": 32},
        cluster=cluster,
        strategy="downpour",
        stop={"steps": 3},
        batch_size=4,
        partition="iid",
    )
    assert (scenario.workload.task, scenario.workload.batch_size) == (
        "tests.workloads.test_user_task:points",
        4,
    )
    assert lockstep.simulate(scenario).metrics["loss"] > 0


def points(n: int = 64) -> lockstep.Task:
    x = torch.randn(n, 2)
    data = TensorDataset(x, (x[:, 0] > 0).long())
    return lockstep.Task(
        nn.Linear(2, 2), data, data, lambda model, b: nn.functional.cross_entropy(model(b[0]), b[1])
    )


def test_a_function_of_a_notebook_can_be_simulated_only() -> None:
    def nested(n: int = 64) -> lockstep.Task:
        return points(n)

    scenario = lockstep.scenario(
        nested, cluster=document()["cluster"], strategy="downpour", stop={"steps": 2}, batch_size=4
    )
    assert lockstep.simulate(scenario).metrics["loss"] > 0
    with pytest.raises(ScenarioError, match=r"nested is a function of a notebook .* write it to a file"):
        lockstep.run(scenario)


def test_the_weights_are_a_function_of_the_seed(folder: Path) -> None:
    """Also where the function draws from Python's and numpy's generators, which are left as they were."""
    more = "import random\nimport numpy as np"
    written(
        folder, task("nn.Linear(2 + 0 * (x.add_(random.random() + np.random.rand()) is None), 2)", more=more)
    )
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    workload = made(document()).workload
    first, again, other = (build(workload, 2, seed).initial().tolist() for seed in (1, 1, 2))
    assert first == again != other
    assert before[0].equal(torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()


# ------------------------------------------------------------------ sizes


DRAWING = """
import random
import numpy as np

def made():
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, np.random.rand() + random.random())
    return model

def mixed(model, batch):
    x, y = batch
    share = np.random.beta(1, 1) * random.random() * torch.rand(1)
    return nn.functional.cross_entropy(model(share * x + (1 - share) * x.flip(0)), y)

def drawn(output, batch):
    return output.sum() * np.random.rand() * random.random()
"""


@pytest.mark.parametrize("dropout", ["micro-batch", "sample"])
def test_what_a_users_code_draws_is_a_function_of_the_seed(folder: Path, dropout: str) -> None:
    """With Python's generator and numpy's: as a model is made, in a loss and in a metric."""
    written(folder, task(model="made", loss="mixed", metrics="{'drawn': drawn}", more=DRAWING))
    workload = made(document(workload={"task": "my_task:f", "batch_size": 8, "dropout": dropout})).workload
    one, other = build(workload, 2, 0), build(workload, 2, 0)
    first = one.initial()
    assert torch.equal(first, other.initial())
    assert torch.equal(one.gradient(first, 0, 0), other.gradient(first, 0, 0))
    assert not torch.equal(one.gradient(first, 0, 0), one.gradient(first, 0, 1))
    assert one.evaluate(first).metrics == other.evaluate(first).metrics


@pytest.mark.parametrize(
    "split",
    [
        {"micro_batches": 2},
        {"micro_batches": 2, "recompute": True},
        {"pipeline": 2, "micro_batches": 2},
        {"tensor": 2, "micro_batches": 2},
    ],
    ids=str,
)
def test_what_a_loss_draws_in_passes_is_a_function_of_the_seed(folder: Path, split: dict[str, Any]) -> None:
    """The loss is called for what it gives the model, for what comes of that, and to recompute it."""
    loss = "lambda m, b: nn.functional.cross_entropy(m(b[0] + random.random() * torch.rand_like(b[0])), b[1])"
    model = "nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))"
    written(folder, task(model, loss=loss, more="import random\nimport torch\n"))
    work = {"task": "my_task:f", "batch_size": 8}
    cluster = {
        "workers": split.get("pipeline", 1) * split.get("tensor", 1),
        "network": {},
        "compute": {"time": {"distribution": "constant", "value": "2 ms"}},
    }
    run = {"cluster": cluster, "strategy": {"name": "all-reduce", "learning_rate": 0.1}}

    def learned(**split: Any) -> Any:
        np.random.seed()
        random.seed()
        return simulated(work, parallelism=split, **run).parameters

    first = learned(**split)
    assert np.array_equal(first, learned(**split))
    run["cluster"] = cluster | {"workers": 1}
    assert np.allclose(first, learned(micro_batches=2), atol=1e-6)


def test_sizes_are_those_of_the_shipped_model(folder: Path) -> None:
    written(folder, DIGITS)
    mine, shipped = (sizes(made(document(workload=workload)).workload) for workload in (MINE, SHIPPED))
    assert mine == shipped


def test_tied_weights_count_once_frozen_ones_not_and_buffers_are_constants(folder: Path) -> None:
    written(folder, task("Tied()", more=TIED))
    learner = build(made(document()).workload, 1, seed=1)
    assert learner.sizes.parameters == 4 + 2 + 2 + 3
    start = learner.initial()
    first, again = learner.gradient(start, 0, 0), learner.gradient(start, 0, 0)
    assert first.equal(again)
    assert first[:3].equal(torch.zeros(3))  # nn.Module lists its own parameters first
    assert first[3:].count_nonzero() == 8
    assert learner.evaluate(start) == learner.evaluate(start)


COUNTS = """
class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.calls = nn.Linear(2, 2), nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, x):
        self.calls.data.add_(1)
        return self.inside(x)
"""


def test_what_is_not_trained_a_model_may_write_to(folder: Path) -> None:
    written(folder, task("Counts()", more=COUNTS))
    assert simulated({"task": "my_task:f", "batch_size": 8}).metrics["updates"]


def test_what_the_meta_device_cannot_do_is_computed(folder: Path) -> None:
    said = "nn.functional.cross_entropy(model(batch[0]), batch[1])"
    loss = f"lambda model, batch: {said} * (1 + 0 * batch[0].sum().item())"
    written(folder, task(loss=loss))
    assert sizes(made(document()).workload).flops == 2 * 2 * 8 * 2 * 2  # forward, and of the weights


# ------------------------------------------------------------------ metrics


@pytest.mark.parametrize("engine", [pytest.param("executor", marks=pytest.mark.real), "simulator"])
def test_any_metric_is_recorded_by_name_and_can_end_a_run(folder: Path, engine: str) -> None:
    """Counted in two ways: a scalar for each batch, and a value for each sample."""
    metrics = (
        "{'wrong': lambda output, batch: (output.argmax(1) != batch[1]).float(),"
        " 'wrong in all': lambda output, batch: (output.argmax(1) != batch[1]).float().mean()}"
    )
    written(folder, task(metrics=metrics))
    slowly = {"time": {"distribution": "constant", "value": "40 ms"}}  # the launcher evaluates meanwhile
    config = made(
        document(
            cluster={"workers": 2, "network": {}, "compute": slowly},
            stop={"steps": 40, "target": {"metric": "wrong", "at_most": 0.1}},
        )
    )
    result = ENGINES[engine](config)
    curve, found = result.curve, result.metrics
    assert list(curve.columns) == ["time", "version", "loss", "accuracy", "wrong", "wrong in all"]
    assert np.allclose(curve["wrong"], curve["wrong in all"], rtol=1e-6)
    assert curve["wrong"].iloc[-1] <= 0.1 < curve["wrong"].iloc[0]
    assert found["metrics"] == {name: curve[name].iloc[-1] for name in ("wrong", "wrong in all")}
    assert (found["target"], found["target_metric"]) == (0.1, "wrong")
    first = curve[curve["wrong"] <= 0.1]["time"].iloc[0]
    assert found["time_to_target_s"] == first
    assert found["updates"] < 40
    assert result.row["metrics.wrong"] == found["metrics"]["wrong"]
    result.save(folder / "out")
    assert saved.load(folder / "out").curve.equals(curve)


# ------------------------------------------------------------------ whose code runs


def test_code_from_elsewhere_runs_only_if_it_is_trusted(folder: Path) -> None:
    written(folder / "elsewhere", task())
    (folder / "mine.yaml").write_text(
        json.dumps(document(workload={"task": "my_task:f", "root": str(folder / "elsewhere")}))
    )
    with pytest.raises(ScenarioError, match=r"code runs only from the current folder.* --trust"):
        lockstep.load("mine.yaml")
    assert lockstep.load("mine.yaml", trust=True).workload.content


def test_loading_alone_runs_nothing(folder: Path) -> None:
    written(folder, "import pathlib\npathlib.Path('mark').mkdir()\n")
    (folder / "mine.yaml").write_text(json.dumps(document()))
    scenarios.load("mine.yaml")
    assert not (folder / "mark").exists()


def test_the_content_of_the_code_is_part_of_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the module, and of what it imports from beside it; a file that an option names is too."""
    written(folder, task(more="import helper"))
    written(folder, "rate = 1", "helper")
    first = made(document())
    dumped = scenarios.dump(first)
    assert first.workload.content in dumped
    written(folder, "rate = 2", "helper")
    os.utime(folder / "helper.py", (1, 1))  # as if it had been edited later
    second = made(document())
    assert first.workload.content != second.workload.content
    assert key(first) != key(second)
    (folder / "old.yaml").write_text(dumped)
    with pytest.raises(ScenarioError, match="has changed since this was written"):
        scenarios.load("old.yaml")
    with pytest.raises(ScenarioError, match="is not what the scenario was read with"):
        lockstep.check(first)


def test_an_edited_module_is_imported_again(folder: Path) -> None:
    written(folder, task("nn.Linear(2, 2)"))
    assert sizes(made(document()).workload).parameters == 6
    written(folder, task("nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))"))
    assert sizes(made(document()).workload).parameters == 17
    assert str(folder) not in sys.path[:1]
