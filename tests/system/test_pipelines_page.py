"""docs/pipelines.md and docs/tensor.md have what running gives: tables, pictures, and every key."""

import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from lockstep.scenarios.parallelism import Parallelism
from lockstep.strategies import STRATEGIES
from lockstep.studies.accuracy_suite.tables import between_markers
from tests.support import ROOT

PAGE, TENSOR = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("pipelines", "tensor")
)


@pytest.fixture(scope="module")
def make() -> Iterator[ModuleType]:
    """The program that writes the page's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "make"))
        yield import_module("pipelines")


@pytest.mark.parametrize("name", ["orders", "pictures"])
def test_orders_are_as_drawn(make: ModuleType, name: str) -> None:
    made = make.TABLES[name]()
    assert between_markers(PAGE, made, f"{make.NAME} {name}") == PAGE, "out of date: make docs"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_does_what_its_row_says(make: ModuleType, strategy: str) -> None:
    assert f"\n{make.strategy_row(strategy)}\n" in PAGE, "out of date: make docs"


@pytest.mark.slow  # of the strategies that ship: somebody's own are in no table
def test_the_table_has_every_strategy_in_their_order() -> None:
    table = PAGE.partition("pipelines.py strategies -->")[2].partition("<!-- end")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.M) == list(STRATEGIES)


def test_every_key_is_there_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE + TENSOR, re.M))
    for key, field in Parallelism.model_fields.items():
        shown, default = rows[key].strip("`"), field.default
        if key == "cut":
            assert shown == f"{{by: {default.by}}}"
        elif default is not None:
            assert shown == re.sub(r"[()']", "", str(default).lower()).join(
                "[]" if key == "axes" else ["", ""]
            )
