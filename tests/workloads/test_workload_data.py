"""Data sets and models: shapes, splits, sizes, and errors that help."""

import os
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lockstep import scenarios
from lockstep.scenarios import ScenarioError
from lockstep.workloads import datasets, models, modules, sizes
from lockstep.workloads.forms import FORMS
from lockstep.workloads.torchvision_repair import import_torchvision


def fresh(code: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def data(dataset: str, model: str, batch_size: int = 32) -> scenarios.Data:
    return scenarios.Data.model_validate({"dataset": dataset, "model": model, "batch_size": batch_size})


@pytest.mark.slow
def test_torchvision_imports_in_a_fresh_interpreter_even_after_a_failure() -> None:
    code = """
try:
    import torchvision
except RuntimeError:
    pass
from lockstep.workloads.torchvision_repair import import_torchvision
tv = import_torchvision()
assert import_torchvision() is tv
import torch
assert len(tv.datasets.FakeData(3)) == 3
assert tv.transforms.ToTensor()(tv.datasets.FakeData(3)[0][0]).shape == (3, 224, 224)
print(tv.models.get_model("resnet18")(torch.zeros(2, 3, 32, 32)).shape[1])
"""
    assert fresh(code) == "1000"


def test_other_import_failures_are_passed_on(monkeypatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(RuntimeError, match="something else"):
        import_torchvision()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "fake"])
def test_dataset_has_its_form(name: str) -> None:
    form, loaded = FORMS[name], datasets.load(name)
    assert loaded.train_x.shape == (form.train, *form.shape)
    assert loaded.test_x.shape == (form.test, *form.shape)
    assert loaded.train_y.shape == (form.train,)
    assert loaded.test_y.shape == (form.test,)
    assert loaded.train_x.dtype == loaded.test_x.dtype == torch.float32
    assert loaded.train_y.dtype == loaded.test_y.dtype == torch.int64
    assert set(loaded.train_y.tolist()) == set(range(loaded.classes))
    assert loaded.train_x.mean((0, 2, 3)).abs().max() < 1e-5
    assert loaded.train_x.var((0, 2, 3), unbiased=False) == pytest.approx(1, abs=1e-4)


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    bunch, (train_x, train_y, test_x, test_y) = load_digits(), datasets._digits()
    order = np.random.default_rng(0).permutation(1797)
    assert torch.equal(torch.cat([train_x, test_x]).squeeze(1), torch.tensor(bunch.images[order]))
    assert torch.cat([train_y, test_y]).tolist() == bunch.target[order].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_a_small_model_learns_digits_without_what_takes_long_to_import(model: str) -> None:
    learns = f"""
import sys
from lockstep.scenarios import Data
from lockstep.workloads import build, modules
workload = Data(model="{model}", dataset="digits")
learner = build(workload, 2, 0)
learner.gradient(learner.initial(), 0, 0)
learner.evaluate(learner.initial())
print(*{{"sklearn", "scipy", "torch._dynamo"}} & {{*sys.modules, *modules(workload)}})
"""
    assert fresh(learns) == ""
    assert "torch._dynamo" in modules(data("digits", model), in_layers=True)
    assert "torch._dynamo" in modules(data("digits", "resnet18"))


@pytest.mark.slow
def test_datasets_are_the_same_in_every_process() -> None:
    code = """
import hashlib
from lockstep.workloads import datasets
whole = hashlib.sha256()
for name in ("digits", "fake"):
    d = datasets.load(name)
    for tensor in (d.train_x, d.train_y, d.test_x, d.test_y):
        whole.update(tensor.numpy().tobytes())
print(whole.hexdigest())
"""
    here: dict[str, Any] = {}
    exec(code.replace("print(whole.hexdigest())", ""), here)
    assert fresh(code) == here["whole"].hexdigest()


class Part:
    """A stand-in for torchvision's MNIST: files below root/folder, `download` writes them."""

    downloads = 0
    broken: Exception | None = None

    def __init__(self, root, train: bool, download: bool = False) -> None:
        file = os.path.join(root, "MNIST", "raw", "images")
        if download:
            type(self).downloads += 1
            os.makedirs(os.path.dirname(file))
            with open(file, "w") as out:
                out.write("half")
            if self.broken:
                raise self.broken
        if not os.path.exists(file):
            raise RuntimeError("Dataset not found.")
        samples = 6 if train else 2
        self.data = torch.arange(samples * 16, dtype=torch.uint8).reshape(samples, 4, 4)
        self.targets = torch.arange(samples)


@pytest.fixture
def mnist(monkeypatch, tmp_path):
    kind = type("Kind", (Part,), {})
    monkeypatch.setattr(import_torchvision().datasets, "MNIST", kind)
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path))
    datasets.load.cache_clear()
    yield kind
    datasets.load.cache_clear()


def test_download_is_kept_and_not_repeated(mnist, tmp_path) -> None:
    first = datasets.load("mnist")
    assert first.train_x.shape == (6, 1, 4, 4)
    datasets.load.cache_clear()
    assert torch.equal(datasets.load("mnist").train_x, first.train_x)
    assert mnist.downloads == 1
    assert [path.name for path in tmp_path.iterdir()] == ["MNIST"]


def test_a_broken_download_leaves_nothing_behind(mnist, tmp_path) -> None:
    mnist.broken = ConnectionResetError("connection reset")
    with pytest.raises(ScenarioError, match="connection reset"):
        datasets.load("mnist")
    assert list(tmp_path.iterdir()) == []
    mnist.broken = None
    assert len(datasets.load("mnist").test_y) == 2


@pytest.mark.parametrize(("name", "file"), [("mnist", "images-idx3"), ("fashion-mnist", "images-idx3"),
                                            ("cifar10", "test_batch")])  # fmt: skip
def test_offline_the_error_helps(name: str, file: str, monkeypatch, tmp_path, capsys) -> None:
    def offline(*_: object, **__: object) -> None:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path))
    with pytest.raises(ScenarioError) as caught:
        datasets.load(name)
    assert caught.value.key == "workload.dataset"
    for part in (name, str(tmp_path), file, "LOCKSTEP_DATA", "Name or service not known", "digits"):
        assert part in caught.value.problem
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_files_placed_by_hand_that_are_something_else(monkeypatch, tmp_path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (raw / f"{part}-{kind}-ubyte").write_bytes(b"not an idx file at all")
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path))
    with pytest.raises(ScenarioError, match="not whole"):
        datasets.load("mnist")


def test_a_data_directory_that_cannot_be_made(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path / "file"))
    with pytest.raises(ScenarioError, match="LOCKSTEP_DATA"):
        datasets.load("mnist")


def test_cnn_is_the_classic_one_at_28() -> None:
    model = models.build("cnn", (1, 28, 28), 10, seed=0)
    linear = [(m.in_features, m.out_features) for m in model.modules() if isinstance(m, nn.Linear)]
    convolutions = [(m.in_channels, m.out_channels, m.kernel_size) for m in model.modules()
                    if isinstance(m, nn.Conv2d)]  # fmt: skip
    assert linear == [(9216, 128), (128, 20), (20, 10)]
    assert convolutions == [(1, 32, (3, 3)), (32, 64, (3, 3))]
    assert [m.p for m in model.modules() if isinstance(m, nn.Dropout)] == [0.25, 0.5]


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (2, 9, 13)])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_own_models_adapt_to_the_input(name: str, shape: tuple[int, int, int]) -> None:
    assert models.build(name, shape, 7, seed=0)(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(("name", "parameters"), [("resnet18", 11_689_512), ("alexnet", 61_100_840),
                                                  ("mobilenet_v3_small", 2_542_856)])  # fmt: skip
def test_torchvision_parameter_counts(name: str, parameters: int) -> None:
    with torch.device("meta"):
        assert count(models.build(name, (3, 224, 224), 1000, seed=0)) == parameters


def test_torchvision_model_sees_grey_images_as_colour() -> None:
    grey, colour = (models.build("resnet18", (c, 32, 32), 10, seed=5).eval() for c in (1, 3))
    x = torch.rand(2, 1, 32, 32)
    assert count(grey) == count(colour)
    assert torch.equal(grey(x), colour(x.repeat(1, 3, 1, 1)))


@pytest.mark.parametrize(("name", "near"), [("resnet", "resnet"), ("resnet_18", "resnet18"), ("cnm", "cnn"),
                                            ("fasterrcnn_resnet50_fpn", ""), ("", "")])  # fmt: skip
def test_unknown_models(name: str, near: str) -> None:
    with pytest.raises(ScenarioError, match=f"unknown model.*{near}") as caught:
        models.check(name)
    assert caught.value.key == "workload.model"


def test_known_models() -> None:
    for name in ("mlp", "cnn", "resnet18", "vit_b_16"):
        models.check(name)
    assert len(models.names()) > 70


@pytest.mark.parametrize(
    ("model", "dataset", "batch"),
    [
        ("alexnet", "digits", 32),
        ("vit_b_16", "digits", 32),
        ("maxvit_t", "cifar10", 32),
        ("resnet18", "digits", 1),
    ],
)
def test_a_model_that_does_not_fit(model: str, dataset: str, batch: int) -> None:
    with pytest.raises(ScenarioError, match=f"{model} cannot be trained") as caught:
        sizes(data(dataset, model, batch))
    assert caught.value.key == "workload.model"


def test_first_parameters_follow_the_seed_and_leave_the_global_generator() -> None:
    state = torch.get_rng_state()
    first, same, other = (
        torch.cat([p.flatten() for p in models.build("cnn", (1, 8, 8), 10, seed).parameters()])
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_sizes_of_parameter_counts() -> None:
    bare = scenarios.Sizes.model_validate({"parameters": 1000, "batch_size": 4, "dtype": "bfloat16"})
    assert (sizes(bare).nbytes, sizes(bare).samples, sizes(bare).flops) == (2000, None, None)
    timed = scenarios.Sizes.model_validate({"parameters": 1000, "batch_size": 4, "flops": 2e9})
    assert (sizes(timed).nbytes, sizes(timed).flops) == (4000, 8e9)


def test_sizes_of_problems() -> None:
    quadratic, logistic = (scenarios.Problem.model_validate({"problem": p, "dimension": 50})
                           for p in ("quadratic", "logistic"))  # fmt: skip
    assert (sizes(quadratic).nbytes, sizes(quadratic).samples) == (200, None)
    assert (sizes(logistic).nbytes, sizes(logistic).samples) == (200, 2048)


@pytest.mark.slow
def test_sizes_without_torch() -> None:
    code = """
import sys
from lockstep import scenarios, workloads
for form in ({"parameters": 5}, ):
    workloads.sizes(scenarios.Sizes.model_validate(form))
for problem in ("quadratic", "logistic"):
    workloads.sizes(scenarios.Problem.model_validate({"problem": problem}))
print("torch" in sys.modules, "torchvision" in sys.modules)
"""
    assert fresh(code) == "False False"


def test_flops_of_the_mlp_by_hand() -> None:
    inputs, hidden, classes, batch = 64, 64, 10, 32
    forward = 2 * batch * (inputs * hidden + hidden * classes)
    towards_hidden = 2 * batch * hidden * classes  # the images need no gradient
    measured = sizes(data("digits", "mlp", batch))
    assert measured.flops == forward + forward + towards_hidden
    assert measured.parameters == inputs * hidden + hidden + hidden * classes + classes
    assert measured.samples == 1437


@pytest.mark.slow
def test_flops_of_resnet50_are_the_known_ones() -> None:
    # 4.09 GMAC forward at 224 × 224 (torchvision's own table); training is close to three times that
    with torch.device("meta"):
        model = models.build("resnet50", (3, 224, 224), 1000, seed=0)
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(torch.empty(1, 3, 224, 224, device="meta")).sum().backward()
    assert counter.get_total_flops() == pytest.approx(3 * 2 * 4.09e9, rel=0.02)


@pytest.mark.parametrize("model", ["regnet_y_400mf", "googlenet", "vit_b_16", "swin_t"])
def test_sizes_of_unusual_models(model: str) -> None:
    assert sizes(data("cifar10", model)).flops > 1e6


def test_sizes_need_no_data_set_and_leave_the_global_generator(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path))
    state = torch.get_rng_state()
    measured = sizes(data("mnist", "cnn", 128))
    assert (measured.parameters, measured.samples) == (1_201_382, 60_000)
    assert list(tmp_path.iterdir()) == []
    assert torch.equal(torch.get_rng_state(), state)
