"""What a sweep stands for: grid, zip, points and seeds, in a fixed order; and what is wrong with one."""

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lockstep import ScenarioError, load
from lockstep.scenarios import dump
from lockstep.schema import json_schema
from lockstep.sweeping.points import plan
from tests.support.scenarios import SIZES

ZIP = "zip: {cluster.workers: [1, 3], cluster.network.latency: [1 us, 2 us]}"
POINTS = "points: [{stop.steps: 5}, {stop.steps: 7, strategy.name: ssp}]"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SIZES)
    return path


def test_the_product_of_grid_zip_points_and_seeds_in_order(file: Path) -> None:
    found = plan(
        file,
        [
            "sweep={batch: [1]}".replace("batch", "workload.batch_size"),
            f"sweep.{ZIP}".replace(": {", "={", 1),
            f"sweep.{POINTS}".replace(": [", "=[", 1),
            "sweep.seeds=2",
        ],
    )
    rows = [
        (r.point, s.cluster.workers, s.cluster.network.latency, s.stop.steps, s.strategy.name, s.seed)
        for r in found.runs
        for s in [r.scenario]
    ]
    assert rows == [
        (0, 1, 1e-6, 5, "asynchronous", 5),
        (0, 1, 1e-6, 5, "asynchronous", 6),
        (1, 1, 1e-6, 7, "ssp", 5),
        (1, 1, 1e-6, 7, "ssp", 6),
        (2, 3, 2e-6, 5, "asynchronous", 5),
        (2, 3, 2e-6, 5, "asynchronous", 6),
        (3, 3, 2e-6, 7, "ssp", 5),
        (3, 3, 2e-6, 7, "ssp", 6),
    ]
    assert found.points[3] == {
        "workload.batch_size": 1, "cluster.workers": 3, "cluster.network.latency": "2 us",
        "stop.steps": 7, "strategy.name": "ssp",
    }  # fmt: skip


@pytest.mark.parametrize("seeds", ["seeds: [3, 1]", "seed: [3, 1]"])
def test_seeds_in_a_list(file: Path, seeds: str) -> None:
    runs = plan(file, [f"sweep={{cluster.workers: [1, 2], {seeds}}}"]).runs
    assert [(run.point, run.scenario.seed) for run in runs] == [(0, 3), (0, 1), (1, 3), (1, 1)]


def test_what_a_strategy_does_not_have_is_of_the_one_it_stands_in_for(file: Path) -> None:
    file.write_text(SIZES.replace("asynchronous", "{name: downpour, communication_window: 3, codec: int8}"))
    found = plan(file, ["sweep={strategy.name: [downpour, all-reduce, ssp], strategy.bound: [1, 2]}"])
    assert [run.scenario.strategy.model_dump() for run in found.runs] == [
        {"name": "downpour", "communication_window": 3, "codec": "int8"},
        {"name": "all-reduce", "codec": "int8"},
        {"name": "ssp", "codec": "int8", "bound": 1},
        {"name": "ssp", "codec": "int8", "bound": 2},
    ]
    assert found.same == 2
    assert found.points[0] == {"strategy.name": "downpour"}


def test_a_sweep_may_vary_the_profile_or_what_belongs_together(file: Path) -> None:
    file.write_text(SIZES.replace("workers: 2", "workers: 2\n  stragglers: [{worker: 1, slowdown: 2}]"))
    found = plan(
        file, ["sweep={zip: {cluster.workers: [1, 2], cluster.stragglers: [[], [{worker: 1, slowdown: 3}]]}}"]
    )
    assert [len(run.scenario.cluster.stragglers) for run in found.runs] == [0, 1]


@pytest.mark.parametrize(
    ("sweep", "key", "problem"),
    [
        (
            "zip: {cluster.workers: [1, 2], stop.steps: [3]}",
            "zip.stop.steps",
            "must have 2 items, as many as clu",
        ),
        ("zip: [1]", "zip", "must be a mapping of keys to lists of the same length"),
        ("zip: {cluster.workers: [1, 0]}", "zip.cluster.workers[1]", "must be at least 1, not 0"),
        ("zip: {cluster.workers: []}", "zip.cluster.workers", "must have at least one item"),
        ("points: {cluster.workers: 1}", "points", "must be a list, not a mapping"),
        ("points: [3]", "points[0]", "must be a mapping of keys to values, not 3"),
        (
            "points: [{cluster.workers: 1}, {cluster.wrokers: 2}]",
            "points[1].cluster.wrokers",
            "did you mean 'workers'",
        ),
        ("points: [{cluster.workers: 0}]", "points[0].cluster.workers", "must be at least 1, not 0"),
        (
            "cluster.workers: [1]\n  zip: {cluster.workers: [2]}",
            "zip.cluster.workers",
            "is in the grid too; keep one",
        ),
        ("points: [{name: x}]", "points[0].name", "cannot be swept; sweep a key such as"),
        ("seeds: 0", "seeds", "must be a number of seeds, from 1, or a list of seeds, from 0, not 0"),
        ("seeds: []", "seeds", "must be a number of seeds"),
        ("seeds: [1, -1]", "seeds", "must be a number of seeds"),
        ("seeds: [1, 1]", "seeds", "has a seed twice"),
        ("seed: [1]\n  seeds: 2", "seeds", "seed is swept already; keep one of them"),
        ("seeds: 200_000", "", "has 200,000 runs; at most 100,000"),
        (
            "strategy: [{name: k-sync, k: 2}]\n  cluster.workers: [2, 1]",
            "",
            "with strategy=a mapping, cluster.workers=1: strategy.k: must be at most 1, with 1 worker, not 2",
        ),
    ],
)
def test_bad_sweeps_are_told_with_line_and_key(file: Path, sweep: str, key: str, problem: str) -> None:
    file.write_text(f"{SIZES}sweep:\n  {sweep}\n")
    with pytest.raises(ScenarioError) as wrong:
        plan(file)
    assert wrong.value.key == (f"sweep.{key}" if key else "sweep")
    assert problem in wrong.value.problem
    lines = file.read_text().splitlines()
    assert wrong.value.line == (len(lines) if key else lines.index("sweep:") + 1)
    assert wrong.value.file == str(file)


@pytest.mark.parametrize(
    ("sweep", "good"),
    [
        ({"cluster.workers": [1]}, True),
        ({"cluster.workers": 1}, False),
        ({"zip": {"cluster.workers": [1, 2]}, "points": [{"seed": 1}], "seeds": 3}, True),
        ({"zip": {"cluster.workers": 1}}, False),
        ({"points": [1]}, False),
        ({"seeds": [1, 2]}, True),
        ({"seeds": 0}, False),
    ],
)
def test_editors_know_it(sweep: dict[str, Any], good: bool, file: Path) -> None:
    schema = json_schema()
    assert (
        Draft202012Validator({"$defs": schema["$defs"], **schema["properties"]["sweep"]}).is_valid(sweep)
        is good
    )


def test_it_survives_a_round_trip(file: Path) -> None:
    scenario = load(
        file,
        [f"sweep={{cluster.workers: [1], {ZIP.replace('cluster.workers', 'stop.steps')}, seeds: [1, 2]}}"],
    )
    file.write_text(dump(scenario))
    assert load(file) == scenario


def test_where_it_varies_the_split_what_does_not_fit_is_a_run_that_will_fail(file: Path) -> None:
    tight = ["cluster.memory=7 kB", "strategy=all-reduce", "workload.layers=2", "workload.activation=1 B"]
    with pytest.raises(ScenarioError, match="its device has 7 kB"):
        plan(file, [*tight, "sweep={seed: [1, 2]}"])
    asked = plan(
        file, [*tight, "sweep={parallelism: [{pipeline: 1}, {pipeline: 2}], cluster.workers: [2, 4]}"]
    )
    assert len(asked.runs) == 4
    assert len(plan("pipelines/which-split").points) == 84
