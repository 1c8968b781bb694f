"""Losses and gradients that are not finite, and not because training diverged: the cause is named."""

from pathlib import Path

import pytest

import lockstep
from lockstep.calibration import compute
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import made
from tests.support.tasks import document, task, written

MADE = """
def begun(weight):
    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, weight)
    return layer

def gaps(n):
    x = torch.randn(n, 2)
    x[n - 4:, 1] = float('nan')
    return TensorDataset(x, torch.zeros(n).long())

def ce(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
FOUND = {
    "the first parameters": (
        {"model": "begun(float('nan'))"},
        "the first parameters of my_task:f are not finite: its model begins with nan or infinity",
    ),
    "the data": (
        {"data": "gaps(n)"},
        r"mini-batch \d of worker \d has nan: look for gaps in the `train` of my_task:f",
    ),
    "the gradient": (
        {"loss": "lambda m, b: ce(m, b) + 0 * (m.weight.sum() * 0).sqrt()"},
        "the loss of mini-batch 0 of worker 0, or its gradient, is not finite before anything is learned",
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_what_is_not_finite_from_the_start_is_not_blamed_on_the_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    parts, said = FOUND[case]
    written(tmp_path, task(**parts, more=MADE))
    with pytest.raises(ScenarioError, match=said):
        lockstep.simulate(made(document()))


def test_a_run_that_diverges_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, task(loss="lambda m, b: 1e9 * m(b[0]).square().mean().square()"))
    wild = {"name": "synchronous", "learning_rate": 1e6}
    found = lockstep.simulate(made(document(strategy=wild, stop={"steps": 12})))
    assert any("training diverged; try a smaller" in each for each in found.metrics["warnings"])


def test_one_that_diverges_on_data_with_masked_gaps_goes_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    masked = "lambda m, b: 1e9 * m(b[0].nan_to_num()).square().mean().square()"
    written(tmp_path, task(loss=masked, data="gaps(n)", more=MADE))
    wild = {"name": "synchronous", "learning_rate": 1e6}
    found = lockstep.simulate(made(document(strategy=wild, stop={"steps": 12})))
    assert any("training diverged; try a smaller" in each for each in found.metrics["warnings"])


def test_calibrate_times_it_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, task(data="gaps(n)", more=MADE))
    monkeypatch.setattr(compute, "alone", lambda function, *given: function(*given))
    found = compute.sample(made(document()).workload, 12, 0.0)
    assert len(found.gradients) == 12
    assert "has nan" in found.note
