"""What a report says of a split model: how it is split, what varies, and memory."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep.analysis import report, table
from lockstep.analysis.report import tables
from lockstep.analysis.report.asked import asked
from lockstep.analysis.report.points import points, varied
from lockstep.analysis.summary import main_metrics
from tests.support.scenarios import scenario

SIZES = {"parameters": 1_000_000, "batch_size": 16, "layers": 8, "activation": "16 MB"}


def piped(**changes: Any) -> lockstep.Scenario:
    given = {"parallelism": {"pipeline": 4, "micro_batches": 8}, "stop": {"steps": 2}, "workload": SIZES}
    return scenario(**{"cluster__workers": 8, "strategy": "all-reduce", **given, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "2 replicas of 4 stages, 8 micro-batches, order 1f1b, cut {by: flops}, "
            "axes [tensor, pipeline, data]",
        ),
        (
            {"parallelism": {"pipeline": 4, "order": "interleaved", "chunks": 2, "recompute": True}},
            "2 replicas of 4 stages, 4 micro-batches, order interleaved, 2 chunks a stage, "
            "forward passes computed again, cut {by: flops}, axes [tensor, pipeline, data]",
        ),
        (
            {"strategy": "pipedream", "parallelism": {"pipeline": 2, "cut": [3]}},
            "4 replicas of 2 stages, 1 micro-batch, an order of the strategy's own, cut [3], "
            "axes [tensor, pipeline, data]",
        ),
        ({"parallelism": {"micro_batches": 4}}, "not cut, 4 micro-batches"),
        (
            {"parallelism": {"tensor": 4, "pipeline": 2, "sequence": True}},
            "1 replica of 2 stages × 4 parts, sequences cut too, 2 micro-batches, order 1f1b, "
            "cut {by: flops}, axes [tensor, pipeline, data]",
        ),
        (
            {"parallelism": {"tensor": 4, "redundancy": 2}},
            "2 replicas of 2 parts, each on 2 devices, 1 micro-batch, axes [tensor, pipeline, data]",
        ),
    ],
)
def test_how_the_model_is_split(changes: dict[str, Any], said: str) -> None:
    assert asked(piped(**changes))["Split"] == said


def test_nothing_is_said_where_nothing_is_split() -> None:
    whole = scenario()
    assert "Split" not in asked(whole)
    assert "memory" not in main_metrics(lockstep.simulate(whole))


def test_memory_is_said() -> None:
    result = lockstep.simulate(piped())
    said = dict(tables.of_one(table.row(result)))["Memory"]
    assert said == main_metrics(result)["memory"]
    assert said.endswith("MB at most on a device")
    limited = lockstep.simulate(scenario(cluster__memory="16 GB"))
    assert "memory" in main_metrics(limited)


def test_a_swept_cut_is_in_the_table_and_among_what_varies(tmp_path: Path) -> None:
    cuts = [{"by": "flops"}, [3, 5, 7]]
    lockstep.sweep(piped(sweep={"parallelism.cut": cuts}), out=tmp_path, jobs=1)
    runs = report.gather(tmp_path).runs
    found = points(runs, varied(runs, ["parallelism.cut"]))
    assert [point.setting for point in found] == ["8 workers, cut {by: flops}", "8 workers, cut [3, 5, 7]"]
    shown = tables.of_points(found, None)
    place, memory = shown.head.index("Cut"), shown.head.index("Memory of a device")
    assert [row[place].text for row in shown.rows] == ["{by: flops}", "[3, 5, 7]"]
    assert all(row[memory].text.endswith("MB") for row in shown.rows)
    page = report.page(report.gather(tmp_path), {})
    assert "parallelism.cut: {by: flops}, [3, 5, 7]" in page
    commands = runs["command"].tolist()
    assert commands[0] == "lockstep simulate scenario.yaml"
    assert commands[1].endswith("--set 'parallelism.cut=[3, 5, 7]'")


def test_runs_without_a_split_beside_others_have_no_memory_of_nothing() -> None:
    row = pd.Series({"parallelism.pipeline": float("nan"), "memory_bytes": 1e6})
    assert not tables.told(row)
