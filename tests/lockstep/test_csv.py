"""`--csv` and `--markdown`, wherever `--json` is: the same as rows (docs/metrics.md)."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import typer

from lockstep.cli import app
from tests.support.command_line import Lockstep, fine

COMMANDS: dict[str, Any] = getattr(typer.main.get_command(app()), "commands")  # noqa: B009 (of a click group)
SMALL = ["sizes-only", "--set", "cluster.workers=2", "--set", "stop.steps=3"]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), strict=True))


def alike(cell: str, value: Any) -> bool:
    """Whether a cell has a value: empty for nothing, JSON for all that is no text."""
    if value is None:
        return cell == ""
    return cell == value if isinstance(value, str) else bool(json.loads(cell) == value)


def test_whatever_prints_json_prints_rows_too() -> None:
    options = {name: {o for p in command.params for o in p.opts} for name, command in COMMANDS.items()}
    with_json = {name for name, its in options.items() if "--json" in its}
    assert len(with_json) > 10
    assert {name for name, its in options.items() if "--csv" in its} == with_json
    assert {name for name, its in options.items() if "--markdown" in its} == with_json


def test_one_run_is_one_row_of_the_tidy_table(command: Lockstep) -> None:
    figures = json.loads(fine(command("simulate", *SMALL, "--json")))
    (row,) = rows(fine(command("simulate", *SMALL, "--csv")))
    assert float(row["throughput"]) == figures["throughput"]  # to the last digit
    assert float(row["staleness.p99"]) == figures["staleness"]["p99"]
    assert json.loads(row["staleness.histogram"]) == figures["staleness"]["histogram"]
    assert row["cluster.workers"] == "2"
    assert row["loss"] == ""  # nothing is learned


@pytest.mark.slow
def test_a_sweep_has_a_row_a_run(command: Lockstep) -> None:
    sweep = [*SMALL, "--set", "sweep={cluster.workers: [1, 2], strategy.name: [synchronous, ssp]}"]
    points = json.loads(fine(command("sweep", *sweep, "--jobs", "1", "--json")))["points"]
    found = rows(fine(command("sweep", *sweep, "--jobs", "1", "--csv")))
    assert len(found) == len(points) == 4
    for row, point in zip(found, points, strict=True):
        assert list(row) == list(point)
        assert all(alike(row[key], value) for key, value in point.items())


@pytest.mark.slow
def test_cases_and_claims_have_a_row_each(command: Lockstep) -> None:
    cases = json.loads(fine(command("verify", "--case", "queue alone", "--json")))["cases"]
    found = rows(fine(command("verify", "--case", "queue alone", "--csv")))
    assert [row["case"] for row in found] == [case["case"] for case in cases]
    assert [float(row["simulated"]) for row in found] == [case["simulated"] for case in cases]
    claims = json.loads(fine(command("claims", "--claim", "fan-out", "--json")))["claims"]
    found = rows(fine(command("claims", "--claim", "fan-out", "--csv")))
    assert [(row["claim"], row["what"], float(row["mean"])) for row in found] == [
        (claim["claim"], check["what"], check["mean"]) for claim in claims for check in claim["checks"]
    ]


@pytest.mark.parametrize("name", ["scenarios", "clusters", "workloads", "profiles"])
def test_lists_have_a_row_for_each_name(command: Lockstep, name: str) -> None:
    listed = json.loads(fine(command(name, "--json")))
    assert {row["name"]: row["about"] for row in rows(fine(command(name, "--csv")))} == listed


def test_strategies_have_a_row_for_each_parameter(command: Lockstep) -> None:
    listed = json.loads(fine(command("strategies", "--json")))
    found = rows(fine(command("strategies", "--csv")))
    assert len(found) == sum(map(len, listed.values()))
    assert all(alike(row["default"], listed[row["strategy"]][row["parameter"]]) for row in found)


@pytest.mark.slow
def test_a_recommendation_has_a_row_for_each_that_was_ranked(command: Lockstep, tmp_path: Path) -> None:
    search = [*SMALL, "--strategy", "synchronous", "--strategy", "ssp", "--budget", "2", "--jobs", "1"]
    found = rows(fine(command("recommend", *search, "--csv", "--out", tmp_path)))
    ranking = json.loads((tmp_path / "recommendation.json").read_text())["ranking"]
    assert [row["label"] for row in found] == [each["label"] for each in ranking]
    assert all(alike(row["mean"], each["mean"]) for row, each in zip(found, ranking, strict=True))


def test_a_comma_a_quote_and_a_line_break_stay_in_their_cell(command: Lockstep, tmp_path: Path) -> None:
    name = 'commas, "quotes"\nand lines'
    file = tmp_path / "odd.yaml"
    file.write_text(
        f"name: {json.dumps(name)}\ncluster: laptop\nworkload: bert-base\nstrategy: ssp\nstop: {{steps: 2}}\n"
    )
    (row,) = rows(fine(command("simulate", file, "--csv")))
    assert row["name"] == name


def test_one_of_them_at_a_time(command: Lockstep) -> None:
    ended = command("simulate", *SMALL, "--json", "--csv")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == "error: --csv: cannot be printed beside --json; give one of them\n"


def cells(text: str) -> list[list[str]]:
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in text.splitlines()]


def test_a_run_on_a_page_has_a_line_for_each_metric(command: Lockstep) -> None:
    figures = json.loads(fine(command("simulate", *SMALL, "--json")))
    head, line, *found = cells(fine(command("simulate", *SMALL, "--markdown")))
    assert (head, line) == (["name", "sizes-only"], ["---", "---"])
    metrics = dict(map(tuple, found))
    assert metrics["throughput"] == f"{figures['throughput']:.4g}"
    assert not {"cluster.workers", "seed", "loss", "staleness.histogram"} & set(metrics)


def test_several_runs_on_a_page_have_what_differs(command: Lockstep) -> None:
    sweep = [*SMALL, "--set", "sweep={cluster.workers: [1, 2]}", "--jobs", "1"]
    found = {key: values for key, *values in cells(fine(command("sweep", *sweep, "--markdown")))}
    assert found["cluster.workers"] == ["1", "2"]
    assert not {"workload.batch_size", "cluster.network.latency"} & set(found)


def test_a_list_on_a_page_stands_upright(command: Lockstep) -> None:
    listed = json.loads(fine(command("clusters", "--json")))
    head, _, *found = cells(fine(command("clusters", "--markdown")))
    assert head == ["name", "about"]
    assert {key: value.replace("&#124;", "|") for key, value in found} == listed
