"""How a result shows itself: one line, a table, a picture."""

import re
from xml.etree import ElementTree

import pandas as pd
import pytest

import lockstep
from lockstep.analysis.summary import main_metrics
from tests.support.scenarios import scenario

LEARNING = {"workload": {"problem": "logistic", "batch_size": 8}}


@pytest.fixture(scope="module")
def learned() -> lockstep.Result:
    return lockstep.simulate(scenario(**LEARNING, name="<b>"))


def test_repr_is_one_line(learned: lockstep.Result) -> None:
    assert repr(learned) == "<Result of <b>, predicted: asynchronous, 4 workers, 0.05 s, 3,200 samples/s>"


@pytest.mark.slow
@pytest.mark.parametrize("changes", [LEARNING, {}])
def test_a_notebook_shows_the_metrics_and_a_picture(changes: dict[str, object]) -> None:
    result = lockstep.simulate(scenario(**changes, name="<b>"))
    html = result._repr_html_()
    assert "<b>" not in html
    for name, value in main_metrics(result).items():
        assert name in html
        assert value in html
    (picture,) = re.findall(r"<svg.*</svg>", html, re.DOTALL)
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert ("loss" in picture) == bool(changes)
    assert html == lockstep.simulate(scenario(**changes, name="<b>"))._repr_html_()


def test_a_run_that_did_nothing_shows_too() -> None:
    html = lockstep.simulate(scenario(stop={"time": "1 ms"}))._repr_html_()
    assert "<svg" not in html
    assert "updates" not in html or "0" in html


def test_a_row_and_a_table(learned: lockstep.Result) -> None:
    assert learned.row["cluster.workers"] == 4
    assert learned.row["throughput"] == learned.metrics["throughput"]
    assert learned.table.columns.tolist() == ["predicted"]
    assert learned.table.loc["throughput", "predicted"] == "3,200 samples/s"


def test_records_are_a_tidy_table(learned: lockstep.Result) -> None:
    assert isinstance(learned.records, pd.DataFrame)
    counts = learned.records.groupby("event", observed=True).size()
    assert counts["gradient"] == 20
    assert counts["update"] == learned.metrics["updates"]
