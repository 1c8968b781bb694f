"""A user's folder, with an awkward model and samples of its own, through every command with every family.

Real runs of families whose order is fixed end with the simulator's bits; the others with their replay's.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from tests.support.brief import briefly
from tests.support.command_line import Lockstep, fine
from tests.support.nightly import drawn
from tests.support.tasks import document, written

MODULE = """
    import torch
    from torch import nn
    from torch.utils.data import Dataset

    import lockstep


    class Both(nn.Module):
        '''There and back by one weight; a scale is frozen, and a second pass would differ from the first.'''

        def __init__(self, width):
            super().__init__()
            self.there, self.back = nn.Linear(width, width), nn.Linear(width, width)
            self.back.weight = self.there.weight
            self.scale = nn.Parameter(torch.tensor(0.5), requires_grad=False)
            self.register_buffer("passes", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.passes.add_(1)
            return x + self.scale * self.back(torch.tanh(self.there(x))) / self.passes


    class Points(Dataset):
        '''Noisy points; one sample is a mapping.'''

        def __init__(self, count):
            self.at = torch.randn(count, 4)

        def __len__(self):
            return len(self.at)

        def __getitem__(self, index):
            at = self.at[index]
            return {"at": at + 0.01 * torch.randn(4), "side": (at[0] + at[1] > 0).float()}


    def margin(model, batch):
        return nn.functional.soft_margin_loss(model(batch["at"]).squeeze(1), 2 * batch["side"] - 1)


    def recall(output, batch):
        found = (output.squeeze(1) > 0) & (batch["side"] > 0)
        return found.sum(), int(batch["side"].sum())


    def task(middle, width):
        model = nn.Sequential(
            nn.Linear(4, width), nn.ReLU(), middle, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        return lockstep.Task(model, Points(120), Points(40), margin, {"recall": recall})


    def awkward(width=8):
        return task(Both(width), width)


    def stack(width=8):
        return task(nn.Linear(width, width), width)
"""
TARGET = {"metric": "recall", "at_least": 0.99}


class Family(NamedTuple):
    """Changes of a scenario, and whether the order of its updates is fixed, and so are its bits."""

    strategy: Any
    fixed: bool = True
    workers: int = 2
    parallelism: dict[str, Any] | None = None
    function: str = "awkward"
    workers_per_host: int = 1


def split(strategy: Any = "all-reduce", **parallelism: Any) -> Family:
    return Family(strategy, parallelism={"pipeline": 2, **parallelism})


FAMILIES = {
    "rounds": Family("synchronous"),
    "rounds, k": Family({"name": "k-sync", "k": 1}, fixed=False),
    "asynchronous": Family("asynchronous", fixed=False),
    "ssp": Family({"name": "ssp", "bound": 1}, fixed=False),
    "bounded delay": Family({"name": "bounded-delay", "bound": 1}, fixed=False),
    "corrected": Family("dc-asgd", fixed=False),
    "windows": Family({"name": "downpour", "communication_window": 2}, fixed=False),
    "elastic": Family({"name": "easgd", "communication_window": 2}),
    "elastic, asynchronous": Family({"name": "aeasgd", "communication_window": 2}, fixed=False),
    "averaging": Family({"name": "bmuf", "averaging_period": 2}),
    "local steps": Family({"name": "local-sgd", "averaging_period": 2}),
    "diloco": Family({"name": "diloco", "averaging_period": 2, "learning_rate": 0.01}),
    "streaming diloco": Family(
        {"name": "streaming-diloco", "averaging_period": 4, "fragments": 2, "learning_rate": 0.01}
    ),
    "federated": Family({"name": "fedavg", "local_epochs": 1, "participation": 0.5}),
    "all-reduce": Family({"name": "all-reduce", "algorithm": "ring", "buckets": 2}),
    "all-reduce, native": Family({"name": "all-reduce", "algorithm": "native"}),
    "compressed": Family({"name": "synchronous", "codec": "1-bit"}),
    "compressed, no server": Family({"name": "all-reduce", "codec": "top-k", "codec_ratio": 0.2}),
    "decentralised": Family("d-psgd"),
    "gossip": Family("gossip", fixed=False),
    "decentralised, asynchronous": Family("ad-psgd", fixed=False),
    "fsdp": Family({"name": "fsdp", "units": 2}),
    "hsdp": Family({"name": "hsdp", "group_size": 2, "units": 2}, workers=4),
    "gpipe": split(order="gpipe"),
    "1f1b": split("synchronous", order="1f1b", recompute=True),
    "zero bubble": split(order="zero-bubble"),
    "pipedream": split("pipedream"),
    "pipedream-2bw": split("pipedream-2bw"),
    "tensor": Family("all-reduce", parallelism={"tensor": 2}, function="stack"),
}
UNREPLAYED = {"shared memory": Family("hogwild", fixed=False, workers_per_host=2)}


def scenario(family: Family) -> dict[str, Any]:
    strategy = {"name": family.strategy} if isinstance(family.strategy, str) else family.strategy
    return document(
        cluster={
            "workers": family.workers,
            "workers_per_host": family.workers_per_host,
            "network": {"bandwidth": "1 Gbit/s", "latency": "100 us"},
            "compute": {"time": {"distribution": "constant", "value": "2 ms"}},
        },
        workload={"task": f"my_task:{family.function}", "options": {"width": 8}, "batch_size": 8},
        strategy={"learning_rate": 0.3, **strategy},
        stop={"steps": 30, "target": TARGET},
        parallelism=family.parallelism or {},
        seed=3,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return written(tmp_path, MODULE)


def given(name: str) -> Family:
    """The file my.yaml of a family, in the current folder."""
    family = {**FAMILIES, **UNREPLAYED}[name]
    Path("my.yaml").write_text(json.dumps(scenario(family)))
    return family


def parameters(folder: str) -> Any:
    return np.load(f"{folder}/parameters.npy")


def measured(name: str, command: Lockstep) -> None:
    """`run`, `simulate` and `replay`: the same code comes to the same numbers."""
    family = given(name)
    all_of_it = ("--set", "stop={steps: 12}", "--quiet", "--out")
    fine(command("run", "my.yaml", *all_of_it, "real"))
    fine(command("simulate", "my.yaml", *all_of_it, "same"))
    if family.fixed:
        assert np.array_equal(parameters("real"), parameters("same"))
    assert "bit for bit" in fine(command("simulate", "--replay", "real", "--out", "again"))
    assert np.array_equal(parameters("real"), parameters("again"))
    assert np.isfinite(parameters("real")).all()


def simulated(name: str, command: Lockstep) -> None:
    given(name)
    found = json.loads(fine(command("simulate", "my.yaml", "--json")))
    assert found["samples"] > 0
    assert 0 <= found["metrics"]["recall"] <= 1
    assert found["loss"] < 1


def calibrated(name: str, command: Lockstep) -> None:
    """Measured times take the place of those in the file."""
    given(name)
    fine(command("calibrate", "my.yaml", "--only", "compute", "--out", "mine.yaml", "--quiet"))
    profiled = json.loads(Path("my.yaml").read_text())
    del profiled["cluster"]["compute"]
    profiled["cluster"]["profile"] = "mine.yaml"
    Path("my.yaml").write_text(json.dumps(profiled))
    assert json.loads(fine(command("simulate", "my.yaml", "--json")))["throughput"] > 0


def validated(name: str, command: Lockstep) -> None:
    given(name)
    compared = json.loads(fine(command("validate", "my.yaml", "--set", "stop={steps: 12}", "--json")))
    assert json.dumps(compared).count('"throughput"')


def swept(name: str, command: Lockstep) -> None:
    given(name)
    grid = "sweep={strategy.learning_rate: [0.05, 0.1]}"
    fine(command("sweep", "my.yaml", "--set", grid, "--seeds", "2", "--jobs", "1", "--out", "swept"))
    table = pd.read_parquet("swept/results.parquet")
    assert len(table) == 4
    assert (table["status"] == "ok").all()
    fine(command("report", "swept"))


def recommended(name: str, command: Lockstep) -> None:
    family = given(name)
    strategy = scenario(family)["strategy"]["name"]
    few = ("--strategy", strategy, "--budget", "2", "--jobs", "1")
    found = fine(command("recommend", "my.yaml", *few, "--json"))
    assert json.loads(found)["ranking"]


STEPS = {
    "run, simulate, replay": measured,
    "simulate": simulated,
    "calibrate": calibrated,
    "validate": validated,
    "sweep": swept,
    "recommend": recommended,
}


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize(
    ("step", "family"), drawn(product(STEPS, FAMILIES), one_in=len(FAMILIES), family=lambda case: case[0])
)
def test_a_user_s_walk(
    folder: Path, command: Lockstep, step: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calibration is of fewer gradients than a profile needs to be good."""
    briefly(monkeypatch)
    STEPS[step](family, command)


@pytest.mark.nightly
@pytest.mark.real
@pytest.mark.parametrize("step", [step for step in STEPS if "replay" not in step])
def test_in_shared_memory(
    folder: Path, command: Lockstep, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers race inside the vectors, so that no two runs are the same."""
    briefly(monkeypatch)
    STEPS[step]("shared memory", command)
