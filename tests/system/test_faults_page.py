"""The committed campaign of runs with failures meets its bars; the page has what this code predicts."""

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from benchmarks.failures import KEYS, MADE_BY, PAGE, TRUTH, error, loopback_of, predicted, tables
from lockstep.studies.accuracy_suite.tables import between_markers
from tests.support import ROOT

TABLE = pd.read_csv(TRUTH / "failures.csv")
A_FEW: list[dict[Any, Any]] = TABLE.iloc[::7].to_dict("records")  # a second in all


@pytest.mark.parametrize("metric", ["goodput", "time_to_recover_s"])
def test_half_of_all_runs_are_within_five_percent_and_all_within_fifteen(metric: str) -> None:
    errors = error(TABLE[~TABLE["disturbed"].astype(bool)], metric).abs()
    assert len(errors) == 36
    assert errors.median() <= 0.05
    assert errors.max() <= 0.15


def test_the_page_has_the_tables_of_the_committed_campaign() -> None:
    page = PAGE.read_text("utf-8")
    assert between_markers(page, tables(TABLE), MADE_BY) == page, "the tables have changed: make accuracy"


@pytest.mark.parametrize(
    "row", A_FEW, ids=lambda row: "-".join([row["where"], row["strategy"], row["fault"]])
)
def test_the_committed_predictions_are_those_of_this_simulator(row: dict[Any, Any]) -> None:
    now = predicted(row, loopback_of(TRUTH))
    assert now == {f"predicted {key}": pytest.approx(row[f"predicted {key}"]) for key in KEYS}


@pytest.fixture(scope="module")
def make() -> Iterator[ModuleType]:
    """The program that writes the table of strategies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "make"))
        yield import_module("faults")


@pytest.mark.parametrize("strategy", ["synchronous", "aeasgd", "fsdp", "hogwild"])
def test_the_table_of_strategies_comes_of_runs(make: ModuleType, strategy: str) -> None:
    page = (ROOT / "docs" / "faults.md").read_text("utf-8")
    assert f"\n{make.row(strategy)}\n" in page, "the table has changed: make docs"
