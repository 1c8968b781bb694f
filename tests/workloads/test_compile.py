"""torch.compile: the gradients of the model as it is, but for rounding; where it cannot be, one message."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lockstep
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import made
from lockstep.workloads import build, compiling, deterministic_threads
from tests.support.scenarios import scenario
from tests.support.tasks import document, task, written

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
DEEP = "lambda: nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2))"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return written(tmp_path, task(model=DEEP))


def mine(**changes: Any) -> lockstep.Scenario:
    more = changes.pop("workload", {})
    workload = {"task": "my_task:f", "batch_size": 8, "compile": True, **more}
    return made(document(workload=workload, **changes))


@pytest.mark.nightly  # half a minute of a compiler
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch's own code
@needs_compiler
def test_gradients_are_those_of_the_model_but_for_rounding(folder: Path) -> None:
    plain, faster = (build(mine(workload={"compile": on}).workload, 2, 0) for on in (False, True))
    parameters = plain.initial()
    with deterministic_threads():
        for step in range(3):
            ours, theirs = (each.gradient(parameters, 1, step) for each in (faster, plain))
            assert np.allclose(ours, theirs, rtol=1e-5, atol=1e-6 * float(theirs.abs().max()))
            assert faster.loss == pytest.approx(plain.loss, rel=1e-5)
            parameters = parameters - 0.5 * theirs
    assert faster.evaluate(parameters) == plain.evaluate(parameters)


def test_a_gradient_that_is_another_one_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.compile has made some; the first one is looked at."""

    def half(module: nn.Module, on: torch.device) -> Any:
        return lambda x: module[3](module[:3](x).detach())

    monkeypatch.setattr(compiling, "compiled", half)
    learner = build(mine().workload, 2, 0)
    with pytest.raises(ScenarioError, match=r"workload\.compile: must be false: of this model .*, \d+% off"):
        learner.gradient(learner.initial(), 0, 0)


def test_a_gradient_that_is_mostly_rounding_is_not_refused() -> None:
    """Of a deep model with normalisations in bfloat16 the last bits of parameters turn it round."""
    there = torch.randn(100, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(100, generator=torch.Generator().manual_seed(1))
    compiling.require_alike(there + 0.5 * noise, lambda off: there + 4e6 * off * noise, "bf16")
    with pytest.raises(ScenarioError, match=r"workload\.compile: must be false"):
        compiling.require_alike(there + 0.5 * noise, lambda off: there + 4e5 * off * noise, "bf16")
    compiling.require_alike(there, lambda off: there * float("nan"), "float32")  # nothing of the compiler's


def test_a_loss_that_works_in_place_is_no_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the gradients that are compared has a batch of its own."""
    monkeypatch.setattr(compiling, "compiled", lambda module, on: module)
    loss = "lambda model, batch: nn.functional.cross_entropy(model(batch[0].mul_(2)), batch[1])"
    written(folder, task(model=DEEP, loss=loss))
    learner = build(mine().workload, 2, 0)
    plain = build(mine(workload={"compile": False}).workload, 2, 0)
    expected = plain.gradient(plain.initial(), 0, 0)
    assert torch.equal(learner.gradient(learner.initial(), 0, 0), expected)
    assert torch.equal(learner.gradient(learner.initial(), 0, 0), expected)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@needs_compiler
def test_no_wrong_gradient_of_convolutions_is_learned_from() -> None:
    """torch 2.13.0 makes 0 of those before a pooling on some CPUs."""
    config = scenario(workload={"dataset": "digits", "model": "cnn", "batch_size": 8, "compile": True})
    plain = scenario(workload={"dataset": "digits", "model": "cnn", "batch_size": 8})
    faster, model = (build(each.workload, 2, 0) for each in (config, plain))
    with deterministic_threads():
        expected = model.gradient(model.initial(), 0, 0)
        found = None
        with suppress(ScenarioError):
            found = faster.gradient(faster.initial(), 0, 0)
    assert found is None or np.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_where_it_cannot_be_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScenarioError, match=r"compile: must be false where a gradient is computed in passes"):
        lockstep.check(mine(parallelism={"pipeline": 2}))
    with pytest.raises(ScenarioError, match=r"dropout: must be micro-batch with compile: true"):
        lockstep.check(mine(workload={"dropout": "sample"}))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ScenarioError, match=r"workload\.compile: needs a C\+\+ compiler"):
        build(mine().workload, 2, 0)
