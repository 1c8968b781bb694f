"""What users' models have and shipped ones have not: buffers that passes write into, other layers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lockstep
from lockstep.calibration import layers
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import made
from lockstep.workloads import build
from lockstep.workloads.segments import Micro, segments
from tests.support.tasks import document, task, written

COUNTING = """
class Counting(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        {}
        return super().forward(x) / self.calls
"""
IN_PLACE, ADDED, REPLACED = "self.calls.add_(1)", "self.calls += 1", "self.calls = self.calls + 1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def learner(folder: Path, **parts: str) -> Any:
    written(folder, task(**parts))
    return build(made(document()).workload, 1, 0)


@pytest.mark.parametrize("how", [IN_PLACE, ADDED, REPLACED])
def test_what_a_pass_does_to_a_buffer_is_undone(folder: Path, how: str) -> None:
    """Whether it writes into the buffer or puts another in its place."""
    counting = learner(folder, model="Counting()", more=COUNTING.format(how))
    start = counting.initial()
    first, again = (counting.gradient(start, 0, 0) for _ in range(2))
    assert first.equal(again)
    assert first.isfinite().all()
    assert counting.evaluate(start) == counting.evaluate(start)


def test_in_stages_too(folder: Path) -> None:
    """Two micro-batches through two stages are the mini-batch at once, but for rounding."""
    model = "nn.Sequential(nn.Linear(2, 2), Counting(), nn.Linear(2, 2))"
    counting = learner(folder, model=model, more=COUNTING.format(IN_PLACE))
    start = counting.initial()
    whole, found = counting.gradient(start, 0, 0), torch.zeros_like(start)
    first, second = segments(counting, (0, 1, 3), 2)
    for micro in (Micro(0, 0, 0), Micro(0, 0, 1)):
        second.forward(start[second.owned], micro, first.forward(start[first.owned], micro))
        error, late = second.backward(micro)
        _, early = first.backward(micro, error)
        found += torch.cat([early, late])
    assert torch.allclose(found, whole, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("how", [ADDED, REPLACED])
def test_a_model_that_assigns_to_a_buffer_cannot_be_split(folder: Path, how: str) -> None:
    written(folder, task("nn.Sequential(nn.Linear(2, 2), Counting())", more=COUNTING.format(how)))
    said = r"assigns to the buffer 1\.calls, as \+= does; change it in place, as with add_"
    with pytest.raises(ScenarioError, match=said):
        lockstep.simulate(made(document(parallelism={"pipeline": 2})))


FROZEN = """
class Frozen(nn.Sequential):
    def __init__(self, *layers):
        super().__init__(*layers)
        self[2].bias.requires_grad_(False)
"""
IMAGES = "TensorDataset(torch.randn(16, 4, 6, 6), torch.zeros(16).long())"
GROUPED = "nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 2))"
UNCUT = {
    "frozen": (
        {"model": "Frozen(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2))", "more": FROZEN},
        "2 cannot be cut between devices: one of its parameters is frozen",
    ),
    "sequences": (
        {
            "model": "nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))",
            "data": "TensorDataset(torch.randn(16, 4, 2), torch.zeros(16, 2).long())",
        },
        r"0 cannot be cut .*: each sample has shape \(4, 2\) there",
    ),
    "groups": (
        {
            "model": GROUPED,
            "data": IMAGES,
        },
        "0 cannot be cut .*: its channels are in 2 groups",
    ),
    "padding": (
        {
            "model": "nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, padding_mode='circular'), nn.Flatten(), "
            "nn.Linear(144, 2))",
            "data": IMAGES,
        },
        "0 cannot be cut .*: its padding is circular",
    ),
}


@pytest.mark.parametrize("case", UNCUT)
def test_layers_that_are_not_those_of_the_shipped_models_are_refused(folder: Path, case: str) -> None:
    """Each would else be computed as if it were one of theirs."""
    parts, said = UNCUT[case]
    written(folder, task(**parts))
    with pytest.raises(ScenarioError, match=said) as caught:
        lockstep.simulate(made(document(parallelism={"tensor": 2})))
    assert caught.value.key == "parallelism.tensor"


def test_what_stands_between_layers_is_computed_on_each_device(folder: Path) -> None:
    """Functions of each element, also those that write into what they are given; 20 steps."""
    middle = "nn.Linear(2, 6, bias=False), nn.GELU(), nn.Linear(6, 6, bias=False), nn.ReLU(inplace=True)"
    written(folder, task(f"nn.Sequential({middle}, nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))"))
    whole, cut = (
        lockstep.simulate(
            made(
                document(
                    cluster={**document()["cluster"], "workers": devices},
                    parallelism={"tensor": devices, "micro_batches": 1},
                    stop={"steps": 20},
                )
            )
        ).parameters
        for devices in (1, 2)
    )
    assert cut == pytest.approx(whole, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    "pooled",
    [
        ["nn.MaxPool2d(3, stride=1)"],
        ["nn.MaxPool2d(2, padding=1)"],
        ["nn.MaxPool2d(2)", "nn.MaxPool2d(2)"],
        ["nn.MaxPool2d(2, ceil_mode=True)"],
    ],
    ids=str,
)
def test_rows_that_poolings_mix_are_not_cut_by_row(folder: Path, pooled: list[str]) -> None:
    layers = ["nn.Conv2d(1, 2, 3)", "nn.ReLU()", *pooled, "nn.Flatten()", "nn.LazyLinear(2)"]
    model = f"(lambda m: (m(torch.zeros(1, 1, 14, 14)), m)[1])(nn.Sequential({', '.join(layers)}))"
    written(folder, task(model, "TensorDataset(torch.randn(16, 1, 14, 14), torch.zeros(16).long())"))
    split = {"tensor": 2, "convolutions": "halo"}
    with pytest.raises(
        ScenarioError, match="at most one pooling behind each, of blocks side by side"
    ) as caught:
        lockstep.simulate(made(document(parallelism=split)))
    assert caught.value.key == "parallelism.convolutions"


MANY = """
class Many(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen, self.never = nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2)
        self.pair, self.last = nn.GRU(2, 2, batch_first=True), nn.Linear(2, 2)

    def forward(self, x):
        x, _ = self.pair(self.frozen(x)[:, None])
        return self.last(x[:, 0])
"""


@pytest.mark.parametrize("model", ["Many()", "nn.Linear(2, 2)"])
def test_the_times_of_layers_that_are_frozen_unused_or_give_more_than_a_tensor(
    folder: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of a model that is a layer by itself."""
    monkeypatch.setattr(layers, "_LEAST_S", 0.0)
    written(folder, task(model, more=MANY))
    found = layers._split(made(document()).workload)
    assert 0 < found["backward"] < 1
    seconds = {name: (forward, backward) for name, forward, backward, *_ in found["layers"]}
    shares = {name: share for name, _, share in found["tensors"]}
    assert all(0 < share <= 1 for share in shares.values())
    if model == "Many()":
        assert seconds["never"] == (0.0, 0.0)
        assert shares["never.weight"] == 1.0
        assert seconds["frozen"][1] == 0.0
        assert min(seconds["pair"]) > 0
        assert not any(name.startswith("frozen") for name in shares)


SHARED = """
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    import lockstep


    class Counting(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.add_(1)
            return super().forward(x) * self.calls


    torch.manual_seed(0)
    MODEL, X = Counting(), torch.randn(64, 2)


    def f():
        data = TensorDataset(X, (X[:, 0] > 0).long())
        return lockstep.Task(MODEL, data, data, lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1]))
"""


@pytest.mark.parametrize("more", [{}, {"strategy": "all-reduce", "parallelism": {"micro_batches": 2}}])
def test_a_task_may_give_the_same_module_to_every_run_of_a_process(
    folder: Path, more: dict[str, Any]
) -> None:
    """The second one was an assertion of ours; it would have begun with what the first had learned."""
    written(folder, SHARED)
    first, second = (lockstep.simulate(made(document(**more))) for _ in range(2))
    assert np.array_equal(first.parameters, second.parameters)
    assert first.metrics["loss"] == second.metrics["loss"]
