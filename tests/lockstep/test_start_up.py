"""Help and lists load nothing, a small simulation nothing heavy; sizes are in a table."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.workload import Data
from lockstep.workloads.forms import FORMS
from lockstep.workloads.sizes import TABLE, image, sizes

HEAVY = {
    *("pint", "scipy", "dask"),  # pint loads dask where it is installed
    *("pandas", "pyarrow"),  # the first loads the second
    "torch",
    "torchvision",
    "sklearn",
    "matplotlib",
    "joblib",
    "zmq",
    "optuna",
}
PROGRAM = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted({name.split(".")[0] for name in sys.modules}))))
from lockstep.cli import main
main()
"""


@pytest.mark.slow
def test_a_simulation_that_learns_nothing_loads_nothing_heavy() -> None:
    arguments = ["simulate", "quickstart", "--set", "workload.learning=false", "--json"]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True
    )
    result, loaded = json.loads(ended.stdout), json.loads(ended.stderr.splitlines()[-1])
    assert result["throughput"] > 0
    assert HEAVY.isdisjoint(loaded)


def test_a_simulation_that_is_written_does_without_pandas(tmp_path: Path) -> None:
    """It takes more memory than 4,000 simulated workers."""
    arguments = ["simulate", "sizes-only", "--set", "stop={steps: 1}", "--out", str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True
    )
    loaded = json.loads(ended.stderr.splitlines()[-1])
    assert "pyarrow" in loaded
    assert "pandas" not in loaded


def test_what_a_simulation_has_loaded_is_not_looked_through_for_garbage() -> None:
    """But what the simulation leaves is: an eighth of the time of a small one."""
    told = PROGRAM.replace('sorted({name.split(".")[0] for name in sys.modules})', "state()")
    told = "import gc\nstate = lambda: [gc.isenabled(), gc.get_freeze_count()]\n" + told
    arguments = ["simulate", "sizes-only", "--set", "stop={steps: 1}", "--json"]
    ended = subprocess.run(
        [sys.executable, "-c", told, *arguments], check=True, capture_output=True, text=True
    )
    enabled, frozen = json.loads(ended.stderr.splitlines()[-1])
    assert enabled
    assert frozen > 50_000


LISTS = [["--help"], ["simulate", "--help"], ["scenarios"], ["strategies"]]
LIBRARIES = HEAVY | {"numpy", "pydantic", "ruamel", "rich", "simpy"}


@pytest.mark.parametrize("arguments", [*LISTS, ["clusters", "--json"], ["scenarios", "--csv"]], ids=" ".join)
def test_help_and_lists_load_no_library_but_that_of_the_command_line(arguments: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True
    )
    loaded = json.loads(ended.stderr.splitlines()[-1])
    assert "typer" in loaded
    assert LIBRARIES.isdisjoint(loaded)


def _form(shape: str) -> str:
    return next(name for name, form in FORMS.items() if image(form) == shape)


TOO_SMALL = {"alexnet", "inception_v3", "maxvit_t"}  # the images, for these


def test_the_table_names_every_model_that_can_be_trained() -> None:
    from lockstep.workloads import models

    rows = [line.split(",") for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    assert rows
    counted = {name for name, *_ in rows}
    assert set(models.names()) - counted == TOO_SMALL


# Some of each kind; `python -m lockstep.workloads.counting` counts all of them, which takes minutes.
SOME = [
    *(("mlp", "1x8x8"), ("mlp", "1x28x28"), ("cnn", "1x8x8"), ("cnn", "3x32x32"), ("resnet18", "3x32x32")),
    *(("regnet_y_400mf", "1x8x8"), ("swin_v2_t", "1x8x8"), ("vit_b_32", "3x32x32"), ("vgg11", "3x32x32")),
]


@pytest.mark.parametrize(("name", "shape"), SOME)
def test_the_table_has_what_torch_counts(name: str, shape: str) -> None:
    from lockstep.workloads import counting

    found = sizes(Data.model_validate({"dataset": _form(shape), "model": name, "batch_size": 7}))
    assert (found.parameters, [(found.flops, found.kept)]) == counting.count(name, FORMS[_form(shape)], 7)


def test_a_batch_of_one_is_counted_since_many_models_cannot_be_trained_on_it() -> None:
    with pytest.raises(ScenarioError, match="resnet18 cannot be trained on digits in batches of 1"):
        sizes(Data.model_validate({"dataset": "digits", "model": "resnet18", "batch_size": 1}))
    assert (
        sizes(Data.model_validate({"dataset": "digits", "model": "mlp", "batch_size": 1})).parameters == 4810
    )
