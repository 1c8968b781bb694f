"""The first parameters without what learns: those that servers begin with."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import lockstep
from lockstep.scenarios.loading import made
from lockstep.workloads import build, datasets, first_parameters
from tests.support.tasks import DIGITS, document, written

TASKS = [
    {"task": "my_task:digits"},
    {"dataset": "digits", "model": "cnn"},
    {"model": "transformer", "dataset": "sentences", "hidden": 16},
    {"problem": "quadratic"},
    {"problem": "logistic"},
    {"problem": "embedding", "dimension": 80},
]


@pytest.mark.parametrize("workload", TASKS, ids=lambda workload: "-".join(map(str, workload.values())))
def test_they_are_those_of_what_learns(
    workload: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no data that ship are loaded for them."""
    written(folder, DIGITS)
    its = made(document(workload=workload)).workload
    learner = build(its, 2, 5)
    monkeypatch.setattr(datasets, "load", lambda name: pytest.fail(f"{name} is loaded"))
    monkeypatch.setattr(datasets, "_sentences", lambda form: pytest.fail("the text is loaded"))
    found = first_parameters(its, 5)
    assert found.dtype == torch.float32
    assert torch.equal(found, learner.initial())


LABELLED = """
    import os
    from pathlib import Path

    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    import lockstep


    class Labelled(TensorDataset):
        def __getitem__(self, index):
            return super().__getitem__(index)

        @property
        def targets(self):  # is asked for by whoever makes mini-batches
            with Path(__file__).with_name("asked").open("a") as file:
                print(os.getpid(), file=file)
            return self.tensors[1]


    def f():
        x = torch.randn(64, 2)
        data = Labelled(x, (x[:, 0] > 0).long())
        loss = lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])
        return lockstep.Task(nn.Linear(2, 2), data, data, loss)
"""


@pytest.mark.real
def test_servers_have_no_data(folder: Path) -> None:
    """This process evaluates the run."""
    written(folder, LABELLED)
    workload = {"task": "my_task:f", "batch_size": 8, "partition": {"labels": 1}}
    cluster = document()["cluster"] | {"servers": 2}
    real = made(document(workload=workload, cluster=cluster))
    assert lockstep.run(real).metrics["updates"]
    asked = {int(line) for line in (folder / "asked").read_text().split()}
    assert os.getpid() in asked
    assert len(asked) == 2 + 1
