"""Mistakes in a user's task: each is said in one clear line."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest
import torch
from torch import nn

import lockstep
from lockstep.executor.launch import RunFailed
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import made
from lockstep.workloads import build, users
from tests.support.command_line import COMMAND, Lockstep, fine
from tests.support.nightly import drawn
from tests.support.tasks import TIED, document, task, written

HALF = """
class HalfThere(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index > 20:
            raise KeyError(f"sample {index}")
        return torch.zeros(2), index % 2
"""
ENDLESS = """
class Endless(Dataset):
    def __len__(self):
        raise TypeError("no length")

    def __getitem__(self, index):
        return torch.zeros(2), 0
"""
WHOLE = """
class Whole(nn.Module):
    def forward(self, x):
        return x[:, 0].long().clamp(0, 8)
"""
MISTAKES = {
    "no module": ("", {"task": "none:f"}, "there is no module none"),
    "no function": (task(), {"task": "my_task:g"}, "there is no function g in .*my_task.py"),
    "somebody else's": (
        task(more="from os import system"),
        {"task": "my_task:system"},
        "there is no function system",
    ),
    "no name": (task(), {"task": "f"}, "must be package.module:function"),
    "no Python": ("def f(:", {}, "line 1 is no Python"),
    "an error at import": ("1 / 0", {}, "my_task raised ZeroDivisionError: division by zero .*line 1"),
    "an error in it": ("def f():\n    raise KeyError('x')", {}, "my_task:f raised KeyError: 'x' .*line 2"),
    "no task": ("def f():\n    return {}", {}, "must return a lockstep.Task, not dict"),
    "unknown options": (task(), {"options": {"m": 3}}, "unexpected keyword argument 'm'; my_task:f takes n"),
    "no options": (task(), {"options": [3]}, "must be a mapping"),
    "no samples": (task(), {"options": {"n": 0}}, "has no samples in train"),
    "no data set": (task(data="3"), {}, "needs a train with a length"),
    "no model": (task(model="3"), {}, "must have a torch module as its model"),
    "a function without model": (task(model="lambda: 3"), {}, "model must be a torch module"),
    "nothing to train": (task(model="nn.ReLU()"), {}, "without parameters that require gradients"),
    "no scalar": (
        task(loss="lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1], reduction='none')"),
        {},
        r"must return a scalar, the mean .*, not a tensor of shape \(8,\) \(.*my_task.py, line 1[0-9]\)",
    ),
    "parameters that the loss clamps": (
        task(loss="lambda m, b: (m.weight.data.clamp_(-1e-3, 1e-3), m(b[0]).square().mean())[1]"),
        {},
        r"writes to the model's parameters, which only the strategy may do .*my_task.py, line 1[0-9]\)",
    ),
    "parameters that the model scales": (
        task(
            "nn.Sequential(Whole(), nn.Embedding(9, 2, max_norm=1e-3))",
            more=WHOLE,
            loss="lambda m, b: m(b[0]).square().mean()",
        ),
        {},
        "an nn.Embedding with max_norm does so",
    ),
    "no tensor": (
        task(loss="lambda model, batch: 0.5"),
        {},
        r"a tensor, not float \(.*my_task.py, line",
    ),
    "no gradient": (task(loss="lambda model, batch: batch[0].sum()"), {}, "requires no gradient"),
    "shapes": (task(model="nn.Linear(3, 2)"), {}, "my_task:f raised RuntimeError: mat1 and mat2"),
    "shapes of the test": (
        task().replace(" test, loss", " TensorDataset(torch.randn(8, 3), torch.zeros(8).long()), loss"),
        {},
        r"mat1 and mat2 .*my_task.py, line [0-9]+\), computing on `test`",
    ),
    "a class for a model": (task(model="nn.Linear"), {}, "raised TypeError: .*my_task.py, line [0-9]+"),
    "a length below 0": (
        task(data="Endless()", more=ENDLESS.replace('raise TypeError("no length")', "return -1")),
        {},
        "raised ValueError: .*my_task.py, line [0-9]+",
    ),
    "labels": (
        task(data="TensorDataset(x)", loss="lambda m, b: m(b[0]).mean()"),
        {"partition": {"labels": 1}},
        "no labels",
    ),
    "too large a batch": (task(), {"batch_size": 65}, "must be at most 64"),
    "parameters in 16 bits": (
        task(model="nn.Linear(2, 2).bfloat16()"),
        {},
        "parameters are bfloat16; must be float32",
    ),
    "parameters in 64 bits": (
        task(model="lambda: nn.Linear(2, 2).double()"),
        {},
        "are float64; must be float32",
    ),
    "a lazy layer": (task(model="nn.LazyLinear(2)"), {}, "has a model with a lazy layer"),
    "metrics without names": (task(metrics="[len]"), {}, "must have metrics by name, a mapping, not list"),
    "a file for a module": (task(), {"task": "my_task.py:f"}, "without .py: my_task:function"),
    "a sum": (
        task(loss="lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1], reduction='sum')"),
        {},
        r"must be the mean over the batch, and this one is a sum: .* as large \(.*my_task.py, line 1[0-9]\)",
    ),
    "a loss that counts": (
        task(loss="lambda m, b, n=[]: n.append(1) or nn.functional.cross_entropy(m(b[0]), b[1]) * len(n)"),
        {},
        "must be a function of the model and the batch, and this one keeps something: of the same",
    ),
    "an infinite loss": (
        task(loss="lambda m, b: m(b[0]).square().mean() * float('inf')"),
        {},
        "the loss of mini-batch 0 of worker 0, or its gradient, is not finite before anything is learned",
    ),
    "a metric that fails": (
        task(metrics="{'f1': lambda output, batch: batch['label']}"),
        {},
        "my_task:f raised TypeError: tuple indices .*my_task.py, line 1[0-9]",
    ),
    "an exit": ("import sys\nsys.exit(2)", {}, "my_task raised SystemExit: 2 .*line 2"),
    "a metric without a mean": (
        task(metrics="{'f1': lambda output, batch: None}"),
        {},
        r"'f1' must return a tensor, .*not NoneType \(.*my_task.py, line",
    ),
    "a metric of nothing": (
        task(
            loss="lambda m, b: nn.functional.cross_entropy(m.forward(b[0]), b[1])",
            metrics="{'f1': lambda output, batch: 1.0}",
        ),
        {},
        r"loss must call the model itself.* returns \(.*my_task.py, line",
    ),
    "a model that cannot be made": (
        task(model="lambda: {}['x']"),
        {},
        "my_task:f raised KeyError: 'x' .*my_task.py, line",
    ),
    "no length": (task(data="Endless()", more=ENDLESS), {}, "my_task:f raised TypeError: no length"),
    "a sample that is not there": (
        task(data="HalfThere(n)", more=HALF),
        {},
        "my_task:f raised KeyError: 'sample [0-9]+' .*my_task.py, line",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_said(folder: Path, case: str) -> None:
    text, changes, said = MISTAKES[case]
    written(folder, text)
    (folder / "mine.yaml").write_text(
        json.dumps(document(workload={"task": "my_task:f", "batch_size": 8} | changes))
    )
    with pytest.raises(ScenarioError, match=said) as caught:
        lockstep.simulate(lockstep.load("mine.yaml"))
    assert str(caught.value).count("\n") == 0


@pytest.mark.real
def test_what_is_found_while_it_learns_is_said_at_the_scenarios_line(folder: Path, command: Lockstep) -> None:
    """As what is found when the file is read; of an option it is not."""
    late = HALF.replace("index > 20", "not index % 2")
    written(folder, task(data="HalfThere(n)", more=late))
    (folder / "mine.yaml").write_text("\n" + json.dumps(document()))
    told = "my_task:f raised KeyError: 'sample"
    for words in (["simulate"], ["calibrate", "--only", "compute", "--out", "p.yaml"]):
        ended = command(words[0], "mine.yaml", *words[1:])
        assert ended.status == 2
        assert f"error: mine.yaml:2: workload.task: {told}" in ended.err
    ended = command("simulate", "mine.yaml", "--set", "workload.batch_size=16")
    assert f"error: mine.yaml:2: workload.task: {told}" in ended.err
    ended = command("simulate", "mine.yaml", "--set", "workload.task=my_task:f")
    assert f"error: --set workload.task=my_task:f: workload.task: {told}" in ended.err
    written(folder, MISTAKES["a sum"][0])
    for name in ("model", "simulate", "calibrate"):
        ended = command(name, "mine.yaml")
        assert re.search(r"error: mine.yaml:2: workload.task: the task's loss .* is a sum", ended.err)


def test_a_recommendation_without_any_simulation_says_why(folder: Path, command: Lockstep) -> None:
    written(folder, task())
    cluster = {"workers": 2, "compute": "measured"}
    (folder / "mine.yaml").write_text(json.dumps(document(cluster=cluster)))
    ended = command("recommend", "mine.yaml", "--json", "--jobs", "1")
    assert (ended.status, ended.out) == (2, "")
    said = (
        "no simulation of it ended well; the first: cluster.compute: measured times exist only in a real run"
    )
    assert said in ended.err


LOSSES = ("no scalar", "no tensor", "no gradient", "a sum", "a loss that counts")


@pytest.mark.parametrize("case", LOSSES)
def test_the_models_table_says_the_same_of_a_loss(folder: Path, case: str) -> None:
    text, _, said = MISTAKES[case]
    written(folder, text)
    (folder / "mine.yaml").write_text(json.dumps(document()))
    with pytest.raises(ScenarioError, match=said):
        lockstep.model("mine.yaml")


def test_the_models_table_makes_no_large_model_to_try_its_loss(folder: Path) -> None:
    """Of which sizes are known without memory."""
    text = task(
        "lambda: nn.Sequential(nn.Linear(2, 1 << 20), nn.Linear(1 << 20, 1 << 20))",
        loss="lambda m, b: m(b[0]).square().sum()",
    )
    written(folder, text)
    (folder / "mine.yaml").write_text(json.dumps(document()))
    assert lockstep.model("mine.yaml")["parameters"] > 1 << 40


def test_a_function_is_given_and_not_what_it_returns() -> None:
    cluster = document()["cluster"]
    nothing = lockstep.Task(nn.Linear(2, 2), [], [], nn.functional.mse_loss)
    for wrong in (partial(lockstep.Task, nn.Linear(2, 2)), nothing, "my_task:f"):
        with pytest.raises(ScenarioError, match=r"must be a function that returns a lockstep\.Task, not"):
            lockstep.scenario(wrong, cluster=cluster, strategy="downpour", stop={"steps": 1})  # type: ignore[arg-type]
    with pytest.raises(ScenarioError, match=r"workload\.options: must be plain values.*Tensor"):
        lockstep.scenario(
            lockstep.Task, {"n": torch.ones(1)}, cluster=cluster, strategy="downpour", stop={"steps": 1}
        )


def test_keys_that_are_no_task_are_said(folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"it has tasks, options; did you mean 'task'\?"):
        made(document(workload={"tasks": "my_task:f", "options": {}}))
    with pytest.raises(ScenarioError, match=r"workload: .*give its keys themselves: batch_size=4"):
        lockstep.scenario(
            lockstep.Task,
            cluster=document()["cluster"],
            strategy="downpour",
            stop={"steps": 1},
            workload={"batch_size": 4},
        )


PRINTS = "lambda m, b: (print('loss'), nn.functional.cross_entropy(m(b[0]), b[1]))[1]"


def test_what_a_task_prints_is_no_result(folder: Path, command: Lockstep) -> None:
    written(folder, task(loss=PRINTS, more="print('imported')"))
    (folder / "mine.yaml").write_text(json.dumps(document()))
    ended = command("simulate", "mine.yaml", "--json")
    assert json.loads(fine(ended))["samples"] == 64
    assert "imported" in ended.err


WRITES = "import atexit, os\nos.system('echo child')\nos.write(1, b'raw')\natexit.register(print, 'the end')"


def test_what_a_task_writes_beside_python_is_no_result(folder: Path) -> None:
    written(folder, task(more=WRITES))
    (folder / "mine.yaml").write_text(json.dumps(document()))
    said = subprocess.run(
        [*COMMAND, "simulate", "mine.yaml", "--json"], capture_output=True, check=True, text=True
    )
    assert json.loads(said.stdout)["samples"] == 64
    assert all(words in said.stderr for words in ("child", "raw", "the end"))


@pytest.mark.parametrize("split", [{"pipeline": 2}, {"micro_batches": 2}])
def test_a_split_model_prints_no_result_and_its_mistakes_are_said(
    folder: Path, command: Lockstep, split: dict[str, int]
) -> None:
    layers, more = "nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2))", {"parallelism": split}
    one = document(strategy="all-reduce", **more)
    written(folder, task(layers, loss=PRINTS))
    (folder / "mine.yaml").write_text(json.dumps(one))
    ended = command("simulate", "mine.yaml", "--json")
    assert json.loads(fine(ended))["samples"] == 64 // split.get("pipeline", 1)
    assert "loss" in ended.err
    written(folder, task(layers, data="HalfThere(n)", more=HALF))
    with pytest.raises(ScenarioError, match="my_task:f raised KeyError: 'sample"):
        lockstep.simulate(made(one))


def test_threads_put_aside_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """One that ends inside another leaves it aside, and results go where they should afterwards."""
    inside, ended = Event(), Event()

    def evaluate() -> None:
        with users.aside():
            inside.set()
            ended.wait(10)
            print("by the thread")

    thread = Thread(target=evaluate)
    with users.aside():
        thread.start()
        inside.wait(10)
    print("by the program")
    ended.set()
    thread.join()
    print("a result")
    out, err = capsys.readouterr()
    assert (out, err) == ("a result\n", "by the program\nby the thread\n")


@pytest.mark.nightly
@pytest.mark.real
def test_what_a_task_prints_in_real_processes_is_no_result(folder: Path) -> None:
    written(folder, task(loss=PRINTS, more="print('imported')"))
    (folder / "mine.yaml").write_text(json.dumps(document()))
    said = subprocess.run(
        [*COMMAND, "run", "mine.yaml", "--json"], capture_output=True, check=True, text=True
    )
    assert json.loads(said.stdout)["samples"] == 64
    assert "loss" in said.stderr


@pytest.mark.real
def test_what_a_sample_raises_in_a_real_run_is_said_in_a_line(folder: Path) -> None:
    written(folder, task(data="HalfThere(n)", more=HALF))
    with pytest.raises(ScenarioError, match=r"workload\.task: my_task:f raised KeyError: 'sample"):
        lockstep.run(made(document()))
    late = HALF.replace(
        "if index > 20", "self.read = getattr(self, 'read', 0) + 1\n        if self.read > 24"
    )
    written(folder, task(data="HalfThere(n)", more=late))  # the first gradient is before the start
    with pytest.raises(
        RunFailed, match=r"died: workload\.task: my_task:f raised KeyError: 'sample"
    ) as caught:
        lockstep.run(made(document(stop={"steps": 8})))
    assert not caught.value.details


@pytest.mark.real
def test_what_only_a_process_finds_before_the_start_is_bad_input(folder: Path, command: Lockstep) -> None:
    here = "import multiprocessing\nif multiprocessing.parent_process(): raise OSError('not here')"
    written(folder, task(more=here))
    (folder / "mine.yaml").write_text(json.dumps(document()))
    (folder / "mine").mkdir()
    for out, left in (("out/real", "out"), ("mine/real", "mine/real")):
        ended = command("run", "mine.yaml", "--out", out)
        assert ended.status == 2
        assert "error: workload.task: my_task raised OSError: not here (" in ended.err
        assert not (folder / left).exists()
    assert (folder / "mine").exists()


UNGUARDED = """
cluster = {"workers": 1, "compute": "measured"}
lockstep.run(lockstep.scenario(f, cluster=cluster, strategy="downpour", stop={"steps": 1}))
"""


def test_a_module_that_starts_a_run_as_it_is_imported_is_refused(folder: Path) -> None:
    file = written(folder, task() + UNGUARDED) / "my_task.py"
    line = len(file.read_text().splitlines())
    with pytest.raises(ScenarioError, match="below `if __name__ ==") as caught:
        lockstep.simulate(made(document()))
    assert (caught.value.file, caught.value.line) == (str(file), line)


@pytest.mark.slow
@pytest.mark.parametrize("runs", drawn(["script", "task", "neighbour"], 3))
def test_a_script_that_starts_a_run_without_a_guard_ends_in_a_line(folder: Path, runs: str) -> None:
    """Or that imports a file which does: that of the task, or one that imports the task."""
    if runs == "neighbour":
        written(folder, task() + "import starts")
        written(folder, "import lockstep\nfrom my_task import f\n" + UNGUARDED, "starts")
    else:
        written(folder, task() + UNGUARDED)
    written(folder, "import my_task", "script")
    script = "script.py" if runs == "task" else "my_task.py"
    file = folder / ("starts.py" if runs == "neighbour" else "my_task.py")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(rf"error: {re.escape(str(file))}:\d+: this starts processes, .*\n", ended.stderr)


def test_a_model_in_evaluation_mode_is_trained_in_training_mode(folder: Path) -> None:
    """As `from_pretrained` gives them: dropout draws from the first gradient on."""
    written(folder, task("nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()"))
    learner = build(made(document()).workload, 1, 0)
    assert all(module.training for module in learner.module.modules())


BRANCH = """
class Branch(nn.Linear):
    def forward(self, x):
        return x if x.sum() > 0 else super().forward(x)
"""
PAIR = """
class Pair(nn.Linear):
    def forward(self, x, y):
        return super().forward(x) + y[:, None]
"""
TWICE = "lambda m, b: nn.functional.cross_entropy(m(b[0]) + m(b[0]), b[1])"
UNCUT = {
    "twice": ({"loss": TWICE}, "calls the model 2 times"),
    "not at all": ({"loss": "lambda m, b: m.weight.sum()"}, "does not just call the model"),
    "two": (
        {"model": "Pair(2, 2)", "more": PAIR, "loss": "lambda m, b: m(*b).sum()"},
        "does not give the model one tensor",
    ),
    "unused": ({"model": "Tied()", "more": TIED}, "the parameter unused is not used"),
    "branches": ({"model": "Branch(2, 2)", "more": BRANCH}, "symbolically traced"),
}


@pytest.mark.parametrize("case", UNCUT)
def test_what_cannot_be_split_is_said(folder: Path, case: str) -> None:
    parts, said = UNCUT[case]
    written(folder, task(**parts))
    with pytest.raises(ScenarioError, match=f"cannot be taken apart into layers: .*{said}") as caught:
        lockstep.simulate(made(document(parallelism={"pipeline": 2})))
    assert caught.value.key == "workload.task"


def test_a_metric_is_waited_for_only_if_there_is_one(folder: Path) -> None:
    written(folder, task())
    for stop in ({"target_accuracy": 0.9}, {"target": {"metric": "accuracy", "at_least": 0.9}}):
        with pytest.raises(ScenarioError, match=r"my_task:f has no metric accuracy; valid: loss"):
            lockstep.check(made(document(stop={"steps": 3, **stop})))
