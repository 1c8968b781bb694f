"""The JSON Schema that editors use: it accepts what ships, and rejects mistakes."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from typer.testing import CliRunner

from lockstep.cli import app
from lockstep.scenarios import shipped
from lockstep.schema import json_schema


@cache
def validator() -> Draft202012Validator:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(document: Any) -> list[str]:
    return [error.message for error in validator().iter_errors(document)]


def plain(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)


def test_the_command_prints_what_the_package_makes() -> None:
    printed = CliRunner().invoke(app(), ["schema"])
    assert json.loads(printed.stdout) == json.loads(json.dumps(json_schema()))


@pytest.mark.parametrize("name", shipped())
def test_it_accepts_what_ships(name: str) -> None:
    assert problems(plain(shipped()[name])) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(sede=1),
        lambda s: s["cluster"].update(worker=4),
        lambda s: s["cluster"]["network"].update(bandwith="1 Gbit/s"),
        lambda s: s["cluster"].update(workers=0),
        lambda s: s["cluster"]["stragglers"].append({"wroker": 1, "slowdown": 2}),
        lambda s: s["workload"].update(partition="non-iid"),
        lambda s: s["workload"].update(partition={"dirichlet": 0}),
        lambda s: s["workload"].update(dropout="layer"),
        lambda s: s["workload"].update(batch_norm="global"),
        lambda s: s.update(workload={"problem": "logistic", "density": 0}),
        lambda s: s.update(workload={"problem": "logistic", "density": 2}),
        lambda s: s["strategy"].update(communication_windw=5),
        lambda s: s["strategy"].update(communication_window=0),
        lambda s: s["strategy"].update(name="dwnpour"),
        lambda s: s["strategy"].update(correction="dc-asdg"),
        lambda s: s["strategy"].update(correction="all-reduce"),
        lambda s: s["strategy"].update(compensation=0.04),  # of a correction that it does not take
        lambda s: s.update(strategy="dwnpour"),
        lambda s: s["stop"].update(epochs="ten"),
        lambda s: s.pop("stop"),
    ],
)
def test_it_rejects_mistakes(change: Callable[[Any], None]) -> None:
    scenario = plain(shipped()["quickstart"])
    assert problems(scenario) == []
    change(scenario)
    assert problems(scenario)


@pytest.mark.parametrize("partition", ["iid", {"dirichlet": 0.5}, {"labels": 2}])
def test_it_accepts_every_partition(partition: Any) -> None:
    scenario = plain(shipped()["quickstart"])
    scenario["workload"]["partition"] = partition
    assert problems(scenario) == []


def test_it_accepts_a_factor_of_another_strategy_and_its_parameters() -> None:
    scenario = plain(shipped()["quickstart"])
    scenario["strategy"].update(
        name="asynchronous", correction="dc-asgd", compensation=0.1, worker_loop="downpour"
    )
    assert problems(scenario) == []
