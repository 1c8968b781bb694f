"""The example tasks of docs/examples learn, from files of a user's."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_wine

import lockstep
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import made
from lockstep.workloads import build, sentences
from lockstep.workloads.torchvision_repair import import_torchvision
from tests.support import ROOT
from tests.support.command_line import Lockstep, fine
from tests.support.tasks import document

EXAMPLES = ROOT / "docs" / "examples"


def learner_of(task: str, options: dict[str, Any], batch_size: int = 16, **more: Any) -> Any:
    workload = {"task": task, "options": options, "batch_size": batch_size, "root": str(EXAMPLES), **more}
    scenario = made(document(workload=workload), lockstep.check)
    return build(scenario.workload, 2, 0)


def learned(learner: Any, rate: float, steps: int) -> tuple[Any, Any]:
    """The evaluation before and after some steps."""
    parameters = learner.initial()
    before = learner.evaluate(parameters)
    for step in range(steps):
        parameters -= rate * learner.gradient(parameters, 0, step)
    return before, learner.evaluate(parameters)


def test_a_table(tmp_path: Path) -> None:
    learner = learner_of("tabular:mlp", wine(tmp_path / "wine.csv"))
    before, after = learned(learner, 0.1, 60)
    assert before.accuracy < 0.7
    assert after.accuracy > 0.9


@pytest.mark.parametrize(("column", "cell", "said"), [(1, "", "empty"), (1, "x", "'x'"), (0, "", "empty")])
def test_a_table_with_gaps(tmp_path: Path, column: int, cell: str, said: str) -> None:
    options = wine(tmp_path / "wine.csv")
    table = pd.read_csv(options["file"], dtype=str)
    name = [options["target"], *table.columns.drop(options["target"])][column]
    table.loc[6, name] = cell
    table.to_csv(options["file"], index=False)
    with pytest.raises(
        ScenarioError, match=f"wine.csv: row 7 below the header, column '{name}' is {said}; each"
    ):
        learner_of("tabular:mlp", options)


@pytest.mark.parametrize("own", [True, False])
def test_a_text(tmp_path: Path, own: bool) -> None:
    (tmp_path / "book.txt").write_text(sentences.text().characters[:20_000])
    options = {"width": 32, **({"file": str(tmp_path / "book.txt")} if own else {})}
    learner = learner_of("text:gpt", options, precision="bf16")
    assert learner.sizes.parameters == sum(w.numel() for w in learner.module.parameters())  # tied: once
    before, after = learned(learner, 0.3, 40)
    assert before.loss == pytest.approx(np.log(30), rel=0.05)  # all 30 characters are as likely
    assert after.loss < 0.85 * before.loss


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of others' code
@pytest.mark.parametrize("weights", [False, True])
def test_a_model_of_transformers_from_a_folder(tmp_path: Path, weights: bool) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 256, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    config.save_pretrained(tmp_path)
    if weights:
        import_torchvision()
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    (tmp_path / "book.txt").write_text(sentences.text().characters[:10_000])
    options = {"folder": str(tmp_path), "file": str(tmp_path / "book.txt")}
    learner = learner_of("hugging_face:language_model", options)
    assert learner.sizes.parameters == sum(w.numel() for w in learner.module.parameters())  # tied: once
    assert learner.sizes.flops
    before, after = learned(learner, 0.3, 40)
    assert before.loss == pytest.approx(np.log(256), rel=0.05)
    assert after.loss < 0.7 * before.loss
    assert after.accuracy > before.accuracy


def photos(place: Path) -> dict[str, Any]:
    """The options of bright and dark ones that are written there."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 24), ("test", 12)):
        for number in range(count):
            folder = place / part / ("bright" if number % 2 else "dark")
            folder.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 100, (12, 12, 3)) + 150 * (number % 2)
            Image.fromarray(pixels.astype("uint8")).save(folder / f"{number}.png")
    return {"folder": str(place), "size": 32}


def wine(file: Path) -> dict[str, Any]:
    """The options of a table that is written there."""
    load_wine(as_frame=True).frame.to_csv(file, index=False)
    return {"file": str(file), "target": "target"}


def test_a_folder_of_images(tmp_path: Path) -> None:
    """Each is read when it is needed; flips are those of the sample's own seed."""
    options = photos(tmp_path)
    learner = learner_of("images:classifier", options, 4, partition={"labels": 1})
    start = learner.initial()
    first = learner.gradient(start, 0, 3)
    assert learner.gradient(start, 1, 0).shape == first.shape
    assert learner.gradient(start, 0, 3).equal(first)
    assert pd.notna(learner.evaluate(start).accuracy)


COMMANDS: dict[str, Any] = {
    "tabular:mlp": lambda place: wine(place / "wine.csv"),
    "text:gpt": lambda place: {"width": 16},
    "images:classifier": lambda place: photos(place / "photos"),
}


@pytest.mark.real
@pytest.mark.parametrize("task", COMMANDS)
def test_an_example_beside_its_file_runs_as_it_is_simulated(
    task: str, tmp_path: Path, command: Lockstep
) -> None:
    """As the documentation says: copied beside the scenario."""
    shutil.copy(EXAMPLES / f"{task.partition(':')[0]}.py", tmp_path)
    workload = {"task": task, "options": COMMANDS[task](tmp_path), "batch_size": 4}
    compute = {"time": {"distribution": "constant", "value": "100 ms"}}
    one = document(workload=workload, stop={"steps": 2}, cluster={"workers": 2, "compute": compute})
    (tmp_path / "mine.yaml").write_text(json.dumps(one))
    simulated, real = (
        json.loads(fine(command(verb, tmp_path / "mine.yaml", "--json"))) for verb in ("simulate", "run")
    )
    assert real["samples"] == simulated["samples"] == 16
    assert real["parameters_sha256"] == simulated["parameters_sha256"]
