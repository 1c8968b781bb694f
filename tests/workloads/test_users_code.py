"""A user's code: found, run where it may, told from what it was before; its data sets and their batches."""

import gc
import json
import os
import re
import subprocess
import sys
import warnings
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import lockstep
from lockstep import calibration
from lockstep.analysis import saved
from lockstep.calibration import compute
from lockstep.calibration.estimates import Estimates
from lockstep.calibration.profile_file import text
from lockstep.scenarios import ScenarioError, dump
from lockstep.scenarios.loading import made
from lockstep.scenarios.profile import OtherCode, _note, called
from lockstep.workloads import build, samples, sizes, tasks
from tests.support.command_line import Lockstep, fine
from tests.support.commands import forked
from tests.support.tasks import document, key, task, written

CLUSTER = document()["cluster"]


def with_options(**options: Any) -> lockstep.Scenario:
    return made(document(workload={"task": "my_task:f", "batch_size": 8, "options": options}))


# ------------------------------------------------------------------ code that changes


def test_results_can_be_read_when_the_code_has_changed(folder: Path) -> None:
    """But not computed again: not by a replay, nor by who loads the scenario to run it."""
    written(folder, task())
    first = made(document())
    lockstep.simulate(first).save("out")
    written(folder, task() + "\n# better\n")
    os.utime("my_task.py", (1, 1))
    read = saved.load("out")
    assert read.metrics["samples"] == 64
    assert read.scenario.workload.content == first.workload.content  # so that a copy is no more replayed
    assert len(lockstep.records("out")) > 0
    with pytest.raises(ScenarioError, match="has changed since this was written"):
        lockstep.load("out/scenario.yaml")


def test_functions_that_one_makes_are_told_apart() -> None:
    """As in a notebook, where a function may be another when it is defined again."""

    def maker(hidden: int) -> Any:
        def mine() -> lockstep.Task:
            data = TensorDataset(torch.randn(16, 2), torch.zeros(16, dtype=torch.long))
            model = nn.Sequential(nn.Linear(2, hidden), nn.Linear(hidden, 2))
            return lockstep.Task(model, data, data, lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1]))

        return mine

    four, eight = (
        lockstep.scenario(maker(n), cluster=CLUSTER, strategy="downpour", stop={"steps": 1}, batch_size=4)
        for n in (4, 8)
    )
    assert [len(lockstep.simulate(each).parameters) for each in (four, eight)] == [22, 42]
    assert key(four) != key(eight)


@pytest.mark.parametrize(
    ("module", "start"), [("01_train", ["01_train.py"]), ("there.train", ["-m", "there.train"])]
)
def test_a_script_of_any_name_can_be_simulated(folder: Path, module: str, start: list[str]) -> None:
    """One in a package, too, which imports others of it."""
    path = folder / f"{module.replace('.', '/')}.py"
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").write_text("")
    cluster = f"cluster={CLUSTER!r}, strategy='downpour', stop={{'steps': 1}}, batch_size=4"
    says = f"""
if __name__ == "__main__":
    scenario = lockstep.scenario(f, {cluster})
    print(scenario.workload.task, lockstep.simulate(scenario).metrics["samples"])
"""
    path.write_text(task(more="from . import train" if "." in module else "") + says)
    found = subprocess.run([sys.executable, *start], capture_output=True, text=True, check=True).stdout
    assert found == f"{'there.train' if '.' in module else '__main__'}:f 8\n"


@pytest.mark.real
def test_a_script_with_a_guard_starts_a_real_run(folder: Path) -> None:
    cluster = f"cluster={CLUSTER!r}, strategy='synchronous', stop={{'steps': 2}}, batch_size=4"
    says = f"""
if __name__ == "__main__":
    print(lockstep.run(lockstep.scenario(f, {cluster})).metrics["samples"])
"""
    written(folder, task() + says)
    found = subprocess.run([sys.executable, "my_task.py"], capture_output=True, text=True, check=True)
    assert found.stdout == "16\n"


@pytest.mark.real
def test_code_from_elsewhere_needs_trust_on_the_command_line(folder: Path, command: Lockstep) -> None:
    written(folder / "there", task())
    root = str(folder / "there")
    workload = {"task": "my_task:f", "batch_size": 8, "root": root}
    (folder / "mine.yaml").write_text(json.dumps(document(workload=workload)))
    ended = command("simulate", "mine.yaml", "--json")
    assert ended.status == 2
    assert "read it, then go there, or say --trust" in ended.err
    said = forked(folder, "simulate", "mine.yaml", "--json", "--trust")
    assert json.loads(fine(said))["samples"] == 64


# ------------------------------------------------------------------ what a sweep's key knows


def test_files_and_folders_that_options_name_are_in_the_key(folder: Path) -> None:
    written(folder, task().replace("def f(n=64):", "def f(n=64, **options):"))
    (folder / "images").mkdir()
    (folder / "images" / "a.png").write_text("1")
    (folder / "words.txt").write_text("1")
    one = with_options(images="images", files={"words": ["words.txt"]}, text="x" * 5000)
    keys = [key(one)]
    (folder / "images" / "b.png").write_text("2")
    keys.append(key(one))
    (folder / "words.txt").write_text("other")
    os.utime("words.txt", (1, 1))
    keys.append(key(one))
    assert len({*keys}) == 3
    assert keys[-1] == key(one)
    (folder / "images" / "out").mkdir()  # a sweep's own
    (folder / "images" / "out" / "points.jsonl").write_text("")
    assert keys[-1] == key(one)
    assert key(with_options(images="/dev/zero"))  # no file


def test_a_graph_of_workers_is_no_file(folder: Path) -> None:
    workload = {"parameters": 10, "batch_size": 2}
    one = made(document(workload=workload, strategy={"name": "d-psgd", "graph": "ring"}))
    assert key(one) == key(one)


def test_a_sweep_varies_an_option(folder: Path) -> None:
    written(folder, task("nn.Sequential(nn.Linear(2, hidden), nn.Linear(hidden, 2))").replace(
        "def f(n=64):", "def f(hidden, n=64):"))  # fmt: skip
    one = with_options(hidden=2)
    text = dump(one).partition("\nsweep:")[0]
    (folder / "mine.yaml").write_text(f"{text}\nsweep: {{workload.options.hidden: [2, 4]}}\n")
    found = lockstep.sweep("mine.yaml", jobs=1)
    assert found["workload.options.hidden"].tolist() == [2, 4]
    assert found["bytes_sent"].is_monotonic_increasing
    assert found["bytes_sent"].nunique() == 2


def test_options_of_other_names_are_other_entries_of_a_profile(folder: Path) -> None:
    written(folder, task().replace("def f(n=64):", "def f(n=64, m=3, batch_size=1):"))
    names = [called(compute.key(with_options(**each).workload)) for each in ({"n": 64}, {"m": 64})]
    assert names == ["my_task-f-8-n-64", "my_task-f-8-m-64"]
    assert called(compute.key(with_options(batch_size=2).workload)) == "my_task-f-8-batch_size-2"


@pytest.fixture
def profiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario whose times are of a profile that calibrate has made of its task, of a gradient of 2 ms."""
    written(folder, task())
    times = list(np.random.default_rng(0).gamma(25, 2e-3 / 25, 300))
    nothing, split = Estimates({}, {}, {}), {"backward": 0.5, "interval": (0.4, 0.6)}
    monkeypatch.setattr(compute, "sample", lambda *_, **__: compute.Times(times, "cpu", []))
    monkeypatch.setattr(calibration.apply, "step", lambda *_: nothing)
    monkeypatch.setattr(calibration.layers, "split", lambda *_: {**split, "layers": [["", 1e-3, 1e-3, 0, 0]]})
    monkeypatch.setattr(calibration, "start_fork_server", lambda *_: None)
    found = calibration.calibrate([made(document())], ["compute"])
    (folder / "p.yaml").write_text(text(found.profile))
    file = folder / "mine.yaml"
    file.write_text(json.dumps(document(cluster={"workers": 2, "network": {}, "profile": "p.yaml"})))
    return file


def noted(file: Path, *changes: str) -> list[str]:
    """What reading a scenario says of the code."""
    _note.cache_clear()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        lockstep.load(file, changes)
    return [str(each.message) for each in found if issubclass(each.category, OtherCode)]


def test_who_takes_over_times_of_other_code_is_told(profiled: Path) -> None:
    assert noted(profiled) == []
    before = made(document()).workload.content
    written(profiled.parent, task() + "\n# better\n")
    os.utime("my_task.py", (1, 1))
    (said,) = noted(profiled, "sweep={seed: [1, 2]}")  # once
    now = made(document()).workload.content
    assert said == (
        f"the code of my_task:f has changed since the profile was measured (its content was {before}, and is "
        f"{now}): calibrate again if a gradient may take another time now"
    )
    constant = "cluster.compute={time: {distribution: constant, value: 1 ms}}"
    assert noted(profiled, constant) == []  # nothing is taken over
    assert len(noted(profiled, constant, "cluster.profile=null", "workload.layer_times=p.yaml")) == 1
    profile = Path("p.yaml").read_text()
    assert profile.count(before) == 1
    Path("p.yaml").write_text(re.sub(r"\n *content: .*", "", profile))  # as of before there were contents
    assert noted(profiled) == []


@pytest.mark.real
def test_commands_say_it_in_a_line(profiled: Path) -> None:
    written(profiled.parent, task() + "\n# better\n")
    os.utime("my_task.py", (1, 1))
    said = forked(profiled.parent, "simulate", profiled)
    fine(said)
    assert said.err.startswith("note: the code of my_task:f has changed since the profile was measured (")
    assert said.err.count("has changed since") == 1


# ------------------------------------------------------------------ data sets

NOISY = """
class Noisy(TensorDataset):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return 0 * x, y
"""
SHORT = """
def collated(samples):
    xs, ys = zip(*samples)
    return torch.stack(xs)[:, :1].repeat(1, 2), torch.tensor(ys)
"""


def gradient(workload: Any) -> Any:
    learner = build(workload, 1, 0)
    return learner.gradient(learner.initial(), 0, 0)


def test_a_data_set_that_makes_its_samples_itself_is_asked_for_them(folder: Path) -> None:
    written(folder, task(data="Noisy(x, (x[:, 0] > 0).long())", more=NOISY))
    weights = gradient(made(document()).workload)[:4]  # of products with inputs, all of which are 0
    assert torch.equal(weights, torch.zeros(4))


def test_what_ships_lies_in_memory() -> None:
    workload = made(document(workload={"dataset": "digits", "model": "mlp"})).workload
    assert samples.in_memory(tasks.of(workload, 0).train, None)


def test_labels_of_one_are_those_of_its_tensors(folder: Path) -> None:
    written(folder, task(data="Noisy(x, (x[:, 0] > 0).long())", more=NOISY))
    workload = {"task": "my_task:f", "batch_size": 8, "partition": {"labels": 1}}
    assert gradient(made(document(workload=workload)).workload).shape == (6,)


def test_a_task_collates_as_it_says(folder: Path) -> None:
    """Both inputs are the first then, and the gradients of their weights are the same."""
    written(folder, task(more=SHORT, metrics="{}, collated"))
    found = gradient(made(document()).workload)[:4].view(2, 2)
    assert torch.equal(found[:, 0], found[:, 1])
    assert found.abs().sum() > 0
    result = lockstep.simulate(made(document()))
    assert np.isfinite(result.metrics["loss"])


def test_what_is_known_of_a_task_does_not_keep_its_data(folder: Path) -> None:
    written(folder, task().replace("torch.randn(n, 2)", "torch.randn(n, 2) + 0 * n"))

    def kept() -> int:
        gc.collect()
        return sum(type(each) is TensorDataset for each in gc.get_objects())

    before = kept()
    assert sizes(made(document()).workload).parameters == 6
    assert kept() == before


def test_a_metric_that_counts_nothing_is_no_number(folder: Path) -> None:
    written(folder, task(metrics="{'recall': lambda output, batch: (0.0, 0)}"))
    result = lockstep.simulate(made(document()))
    assert isnan(build(result.scenario.workload, 1, 0).evaluate(torch.zeros(6)).metrics["recall"])
    assert result.metrics["loss"] > 0


def test_a_model_that_needs_numbers_is_shown_as_a_whole(folder: Path, command: Lockstep) -> None:
    needs = "lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1]) * (1 + 0 * b[0].sum().item())"
    written(folder, task(loss=needs))
    (folder / "mine.yaml").write_text(json.dumps(document()))
    found = json.loads(fine(command("model", "mine.yaml", "--json")))
    assert (found["parameters"], found["depth"]) == (6, None)
    assert "cannot be split" in fine(command("model", "mine.yaml"))
