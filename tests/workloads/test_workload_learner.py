"""Gradients: right, pure, the same bytes in every order and process; and they learn."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lockstep import scenarios
from lockstep.workloads import Learner, build, deterministic_threads, models, seeds, sizes
from lockstep.workloads.batches import Batches
from lockstep.workloads.classifier import Classifier
from lockstep.workloads.partition import deal
from lockstep.workloads.problems import Logistic, Quadratic


def data(dataset: str = "digits", model: str = "mlp", batch_size: int = 32) -> scenarios.Data:
    return scenarios.Data.model_validate({"dataset": dataset, "model": model, "batch_size": batch_size})


def problem(name: str, **values: float) -> scenarios.Problem:
    return scenarios.Problem.model_validate({"problem": name, **values})


def sgd(learner: Learner, rate: float, steps: int) -> torch.Tensor:
    parameters = learner.initial()
    for step in range(steps):
        parameters -= rate * learner.gradient(parameters, 0, step)
    return parameters


# ------------------------------------------------------------------ batches


def batches_of(samples: int, workers: int, batch_size: int) -> Batches:
    return Batches(deal(np.zeros(samples), workers, seed=1), batch_size, seed=1)


@pytest.mark.parametrize("batch_size", [1, 7, 10, 64, 250])
def test_an_epoch_visits_each_sample_once(batch_size: int) -> None:
    batches = batches_of(100, 2, batch_size)
    stream = np.concatenate([batches(1, step) for step in range(-(-250 // batch_size))])
    assert all(len(batches(1, step)) == batch_size for step in range(3))
    epochs = stream[:250].reshape(5, 50)
    for epoch in epochs:
        assert sorted(epoch.tolist()) == sorted(batches.shares[1].tolist())
    assert epochs[0].tolist() != epochs[1].tolist()
    assert batches.in_epoch(1) == -(-50 // batch_size)


def test_batches_in_any_order() -> None:
    forward, backward = batches_of(100, 3, 8), batches_of(100, 3, 8)
    calls = [(worker, step) for worker in range(3) for step in range(20)]
    there = {call: forward(*call).tolist() for call in calls}
    back = {call: backward(*call).tolist() for call in reversed(calls)}
    assert there == back


def test_more_workers_than_samples() -> None:
    with pytest.raises(scenarios.ScenarioError, match="cannot share") as caught:
        build(data(), workers=1438, seed=0)
    assert caught.value.key == "cluster.workers"


# ------------------------------------------------------------------ gradients are right


def test_gradient_is_autograd_of_the_mean_loss() -> None:
    learner = build(data(model="mlp", batch_size=16), workers=2, seed=3)
    assert isinstance(learner, Classifier)
    parameters = torch.randn(learner.sizes.parameters, generator=torch.Generator().manual_seed(0)) / 8
    batch = torch.from_numpy(learner._batches(1, 4))
    x, y = (tensor[batch] for tensor in learner._train.tensors)
    vector = parameters.clone().requires_grad_()
    w1, b1, w2, b2 = torch.split(vector, [64 * 64, 64, 640, 10])
    logits = torch.relu(x.flatten(1) @ w1.view(64, 64).T + b1) @ w2.view(10, 64).T + b2
    loss = (logits.logsumexp(1) - logits[torch.arange(16), y]).mean()
    (expected,) = torch.autograd.grad(loss, vector)
    assert torch.allclose(learner.gradient(parameters, 1, 4), expected, atol=1e-6)
    assert learner.loss == pytest.approx(loss.item(), rel=1e-6)


def test_quadratic_gradient_and_optimum() -> None:
    learner = build(problem("quadratic", dimension=30, noise=0.0), workers=2, seed=1)
    assert isinstance(learner, Quadratic)
    assert learner.gradient(learner.optimum, 0, 0).abs().max() == 0
    assert learner.loss == 0
    assert learner.evaluate(learner.optimum).loss == 0
    assert learner.evaluate(learner.optimum).accuracy is None
    assert (learner.curvature.min().item(), learner.curvature.max().item()) == (pytest.approx(0.1), 1)
    x = torch.randn(30, generator=torch.Generator().manual_seed(0))
    # f is quadratic, so a central difference of any width is exact; evaluate computes it in float64
    differences = [
        learner.evaluate(x + unit).loss / 2 - learner.evaluate(x - unit).loss / 2 for unit in torch.eye(30)
    ]
    assert learner.gradient(x, 0, 0).tolist() == pytest.approx(differences, abs=1e-6)
    assert learner.loss == pytest.approx(learner.evaluate(x).loss, rel=1e-6)


def test_quadratic_noise_has_the_stated_size_and_is_independent() -> None:
    workload = problem("quadratic", dimension=1000, noise=0.8, batch_size=16)
    learner = build(workload, workers=3, seed=1)
    assert isinstance(learner, Quadratic)
    noise = torch.stack([learner.gradient(learner.optimum, w, s) for w in range(3) for s in range(10)])
    assert noise.std().item() == pytest.approx(0.8 / 4, rel=0.02)
    assert noise.mean().abs().item() < 0.2 / 30_000**0.5 * 4
    overlap = torch.corrcoef(noise) - torch.eye(30)
    assert overlap.abs().max() < 0.2


def test_logistic_gradient_by_finite_differences() -> None:
    learner = build(problem("logistic", dimension=12, batch_size=64), workers=2, seed=1)
    assert isinstance(learner, Logistic)
    parameters = torch.randn(12, generator=torch.Generator().manual_seed(0))
    batch = torch.from_numpy(learner._batches(1, 3))
    x, y = learner.train_x[batch].double(), learner.train_y[batch].double()

    def loss(w: torch.Tensor) -> float:
        return torch.nn.functional.binary_cross_entropy_with_logits(x @ w, y).item()

    w, width = parameters.double(), 1e-5
    differences = [(loss(w + width * u) - loss(w - width * u)) / (2 * width) for u in torch.eye(12).double()]
    # float32 gradient against float64 differences
    assert learner.gradient(parameters, 1, 3).tolist() == pytest.approx(differences, abs=1e-6)
    assert learner.loss == pytest.approx(loss(w), rel=1e-6)


@pytest.mark.parametrize(
    ("dimension", "density", "features"), [(200, 0.05, 10), (20, 0.001, 1), (30, 0.25, 8), (40, 0.99, 40)]
)
def test_samples_have_so_many_features(dimension: int, density: float, features: int) -> None:
    workload = problem("logistic", dimension=dimension, density=density, batch_size=3)
    learner = build(workload, workers=2, seed=1)
    assert isinstance(learner, Logistic)
    for x in (learner.train_x, learner.test_x):
        assert (x != 0).sum(1).unique().tolist() == [features]
        error = (2 / (features * len(x))) ** 0.5  # of the mean square, relative
        assert x.square().sum(1).mean().item() == pytest.approx(
            dimension, rel=4 * error
        )  # as if all were there
    assert (learner.train_x != 0).any(0).all()  # each is in some sample
    assert learner.sizes.flops == 4 * 3 * features


def test_a_sparse_gradient_is_zero_but_for_the_features_of_its_batch() -> None:
    learner = build(problem("logistic", dimension=200, density=0.02, batch_size=4), workers=2, seed=1)
    assert isinstance(learner, Logistic)
    parameters = torch.randn(200, generator=torch.Generator().manual_seed(0))
    touched = (learner.train_x[torch.from_numpy(learner._batches(1, 3))] != 0).any(0)
    assert torch.equal(learner.gradient(parameters, 1, 3) != 0, touched)
    assert touched.sum() <= 16


def test_a_dense_problem_is_what_it_was() -> None:
    """Density 1 draws nothing more: these are the first numbers of the version that had no density."""
    learner = build(problem("logistic", dimension=4), workers=2, seed=1)
    assert isinstance(learner, Logistic)
    rng = seeds.generator(1, "logistic")
    rng.standard_normal(4)
    assert torch.equal(learner.train_x[0], torch.from_numpy(rng.standard_normal(4)).float())


# ------------------------------------------------------------------ gradients are pure

PURE: dict[str, Callable[[], scenarios.Data | scenarios.Problem]] = {
    "mlp": lambda: data(model="mlp"),
    "cnn": lambda: data(model="cnn"),  # dropout
    "resnet18": lambda: data("fake", "resnet18", 4),  # batch normalisation
    "quadratic": lambda: problem("quadratic"),
    "logistic": lambda: problem("logistic"),
    "sparse": lambda: problem("logistic", dimension=60, density=0.05),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PURE)
def test_order_of_calls_does_not_matter(name: str) -> None:
    calls = [(0, 0), (0, 1), (1, 0), (1, 20)]
    with deterministic_threads():
        learner, other = (build(PURE[name](), workers=2, seed=5) for _ in range(2))
        start = learner.initial()
        there = {call: learner.gradient(start, *call) for call in calls}
        back = {call: other.gradient(start, *call) for call in reversed(calls)}
    for call in calls:
        assert torch.equal(there[call], back[call])
    assert not torch.equal(there[0, 0], there[1, 0])
    assert not torch.equal(there[0, 0], there[0, 1])
    assert torch.equal(start, learner.initial())


@pytest.mark.parametrize("name", PURE)
def test_returned_memory_is_new_and_unaligned_parameters_change_nothing(name: str) -> None:
    with deterministic_threads():
        learner = build(PURE[name](), workers=2, seed=5)
        start = learner.initial()
        first = learner.gradient(start, 0, 0)
        kept = first.clone()
        learner.gradient(start, 0, 1)
        shifted = torch.empty(len(start) + 1)[1:].copy_(start)  # 4 bytes off any alignment
        again = learner.gradient(shifted, 0, 0)
    assert torch.equal(first, kept)
    assert torch.equal(again, kept)
    assert first.shape == (learner.sizes.parameters,)
    assert first.dtype == torch.float32
    assert not first.requires_grad


def test_a_model_computes_with_aligned_parameters_where_they_lie() -> None:
    learner: Any = build(PURE["cnn"](), workers=2, seed=5)
    start = learner.initial()
    first = next(learner.module.parameters())
    learner.gradient(start, 0, 0)
    assert first.data_ptr() == start.data_ptr()
    shifted = torch.empty(len(start) + 1)[1:].copy_(start)
    learner.evaluate(shifted)
    assert first.data_ptr() % 64 == 0
    assert torch.equal(first.flatten(), start[: first.numel()])
    assert torch.equal(start, learner.initial())


FORMS = ({"dataset": "digits", "model": "cnn"}, {"problem": "quadratic"}, {"problem": "logistic"})
PROCESS = f"""
from lockstep import scenarios
from lockstep.workloads import build, deterministic_threads
with deterministic_threads():
    for form in {FORMS}:
        kind = scenarios.Data if "dataset" in form else scenarios.Problem
        learner = build(kind.model_validate(form), workers=3, seed=5)
        print(learner.gradient(learner.initial(), 1, 2).numpy().tobytes().hex())
"""


@pytest.mark.slow
def test_a_fresh_process_agrees_to_the_byte() -> None:
    command = [sys.executable, "-W", "error", "-c", PROCESS]
    there = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    here = []
    with deterministic_threads():
        for form in FORMS:
            kind = scenarios.Data if "dataset" in form else scenarios.Problem
            learner = build(kind.model_validate(form), workers=3, seed=5)
            for call in [(0, 7), (2, 1), (1, 0)]:  # a history that must not matter
                learner.gradient(learner.initial(), *call)
            here.append(learner.gradient(learner.initial(), 1, 2).numpy().tobytes().hex())
    assert there == here


@pytest.mark.parametrize("name", PURE)
def test_global_generators_are_untouched(name: str) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].tolist()
    learner = build(PURE[name](), workers=1, seed=5)
    learner.evaluate(learner.initial() - learner.gradient(learner.initial(), 0, 0))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.random.get_state()[1].tolist() == numpy_state


def test_dropout_is_seeded_by_worker_and_step() -> None:
    with deterministic_threads():
        learner = build(data(model="cnn"), workers=2, seed=5)
        assert isinstance(learner, Classifier)
        learner._batches = lambda worker, step: np.arange(32)  # type: ignore[assignment, misc]
        gradients = [learner.gradient(learner.initial(), *call) for call in ((0, 0), (0, 1), (1, 0), (0, 0))]
    assert torch.equal(gradients[0], gradients[3])
    assert not torch.equal(gradients[0], gradients[1])
    assert not torch.equal(gradients[0], gradients[2])


def test_the_loss_costs_no_second_forward_pass() -> None:
    learner = build(data(model="cnn"), workers=1, seed=5)
    assert isinstance(learner, Classifier)
    assert np.isnan(learner.loss)
    passes = []
    learner.module.register_forward_hook(lambda *_: passes.append(1))
    learner.gradient(learner.initial(), 0, 0)
    assert learner.loss == pytest.approx(np.log(10), rel=0.1)
    kept = learner.loss
    assert len(passes) == 1
    learner.evaluate(learner.initial())
    assert learner.loss == kept


@pytest.mark.parametrize("shape", [(3, 2, 4, 6), (1, 1, 5, 3)])
def test_the_cnn_pools_without_a_gradient_as_torch_does(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    x[0, 0, 0, 0] = torch.nan
    pool, oracle = models.Pool(), torch.nn.MaxPool2d(2)
    with torch.no_grad():
        found = pool(x)
    np.testing.assert_array_equal(found, oracle(x))
    assert found.is_contiguous()
    assert pool(x.requires_grad_()).grad_fn is not None


def test_evaluation_computes_the_loss_that_ships_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = build(data(), 1, seed=0)
    learner.gradient(learner.initial(), 0, 0)
    asked = []

    def loss(*given: Any, **named: Any) -> torch.Tensor:
        asked.append(named)
        return whole(*given, **named)

    whole = models.loss
    monkeypatch.setattr(models, "loss", loss)
    learner.evaluate(learner.initial())
    assert asked == [{"reduction": "sum"}]


@pytest.mark.slow
def test_seeds_differ() -> None:
    for name in PURE:
        first, second = (build(PURE[name](), workers=1, seed=seed) for seed in (1, 2))
        start = first.initial()
        assert not torch.equal(first.gradient(start, 0, 0), second.gradient(start, 0, 0))


@pytest.mark.slow
def test_evaluation_with_batch_norm_depends_on_nothing_but_the_parameters() -> None:
    with deterministic_threads():
        fresh, used = (build(PURE["resnet18"](), workers=2, seed=5) for _ in range(2))
        start = fresh.initial()
        moved = start - 0.1 * used.gradient(start, 0, 0)
        assert used.evaluate(moved) != used.evaluate(start)
        used.gradient(start, 1, 3)
        assert used.evaluate(start) == fresh.evaluate(start)


# ------------------------------------------------------------------ they learn


@pytest.mark.parametrize(("model", "rate", "steps"), [("mlp", 0.3, 60), ("cnn", 0.2, 150)])
def test_digits_learn(model: str, rate: float, steps: int) -> None:
    with deterministic_threads():
        learner = build(data(model=model), workers=1, seed=7)
        before = learner.evaluate(learner.initial())
        after = learner.evaluate(sgd(learner, rate, steps))
    assert before.loss == pytest.approx(np.log(10), rel=0.1)
    assert after.loss < before.loss / 2
    assert before.accuracy is not None
    assert after.accuracy is not None
    assert before.accuracy < 0.3
    assert after.accuracy > 0.8


def test_logistic_learns() -> None:
    learner = build(problem("logistic"), workers=1, seed=7)
    before, after = learner.evaluate(learner.initial()), learner.evaluate(sgd(learner, 1.0, 200))
    assert before.loss == pytest.approx(np.log(2))
    assert after.loss < 0.4
    assert after.accuracy is not None
    assert after.accuracy > 0.8


def test_sparse_logistic_learns_as_well() -> None:
    learner = build(problem("logistic", dimension=50, density=0.1), workers=1, seed=7)
    after = learner.evaluate(sgd(learner, 0.2, 400))
    assert after.loss < 0.4
    assert after.accuracy is not None
    assert after.accuracy > 0.8


def test_quadratic_descends_as_the_closed_form_says() -> None:
    learner = build(problem("quadratic", noise=0.0), workers=1, seed=7)
    assert isinstance(learner, Quadratic)
    left = (1 - 0.5 * learner.curvature) ** 40
    expected = (learner.curvature * (left * learner.optimum).square()).sum().item() / 2
    assert learner.evaluate(sgd(learner, 0.5, 40)).loss == pytest.approx(expected, rel=1e-3)


# ------------------------------------------------------------------ the front door


def test_sizes_of_a_learner_are_the_workload_s() -> None:
    for make in PURE.values():
        learner = build(make(), workers=1, seed=0)
        assert learner.sizes == sizes(make())
        assert learner.initial().numel() == learner.sizes.parameters


def test_sizes_only_has_no_learner() -> None:
    with pytest.raises(ValueError, match="no gradients"):
        build(scenarios.Sizes.model_validate({"parameters": 5}), workers=1, seed=0)


def test_deterministic_threads_are_restored() -> None:
    threads = torch.get_num_threads()
    inside = []

    def fail() -> None:
        with deterministic_threads():
            inside.append(torch.get_num_threads())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert inside == [1]
    assert torch.get_num_threads() == threads
