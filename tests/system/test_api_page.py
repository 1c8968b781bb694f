"""docs/api.md is what the docstrings say, and docs/metrics.md has every figure and every column."""

import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

import lockstep
from lockstep.analysis import table
from lockstep.analysis.result import Result
from tests.support import ROOT
from tests.support.scenarios import scenario

DOCS = ROOT / "docs"
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")
SECTIONS = ("cluster.", "workload.", "strategy.", "stop.")


@pytest.fixture(scope="module")
def api() -> Iterator[ModuleType]:
    """The program that writes the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS / "make"))
        yield import_module("api")


@pytest.fixture(scope="module")
def page(api: ModuleType) -> str:
    return str(api.page())


@pytest.fixture(scope="module")
def result() -> Result:
    return lockstep.simulate(scenario())


def documented(name: str) -> bool:
    """Whether the page has a row for it in one of its tables."""
    rows = [line for line in METRICS.splitlines() if line.startswith("| `")]
    return any(f"`{name}`" in row.split("|")[1] for row in rows)


@pytest.mark.slow
def test_the_page_is_what_the_docstrings_say(page: str) -> None:
    assert page == (DOCS / "api.md").read_text(encoding="utf-8"), "out of date: make docs"


def test_the_page_has_everything_that_is_promised(page: str) -> None:
    missing = [name for name in lockstep.__all__ if f"`lockstep.{name}`" not in page]
    assert missing == ["Result", "Scenario"]  # which have sections of their own
    assert "\n## Result\n" in page
    assert "\n## Scenario\n" in page


def test_the_page_has_every_picture(page: str) -> None:
    from lockstep.analysis import plots

    assert re.findall(r"^\| `([\w-]+)` \| `plots", page, re.M) == list(plots.KINDS)
    functions = [name for name in plots.__all__ if callable(getattr(plots, name)) and name.islower()]
    assert [name for name in functions if f"`plots.{name}(" not in page] == []


def test_the_page_links_to_headings_that_are_there(page: str) -> None:
    for file, anchor in re.findall(r"\]\(([\w-]*\.md)?(?:#([\w-]+))?\)", page):
        text = (DOCS / file).read_text(encoding="utf-8") if file else page
        headings = re.findall(r"^#+ (.*)$", text, re.M)
        anchors = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
        assert not anchor or anchor in anchors, (file, anchor)


def test_every_figure_is_documented(result: Result) -> None:
    assert [name for name in result.metrics if not documented(name)] == []


def test_every_column_of_the_tidy_table_is_documented(result: Result) -> None:
    keys = table.keys(result.scenario)
    assert all(key in ("name", "seed") or key.startswith(SECTIONS) for key in keys)
    assert [column for column in result.row if column not in keys and not documented(column)] == []


def test_every_column_of_a_sweep_is_documented() -> None:
    swept = lockstep.sweep(scenario(sweep={"cluster.workers": [1, 2]}), jobs=1)
    keys = table.keys(scenario())
    assert [name for name in swept if name not in keys and not documented(name)] == []


def test_every_column_and_event_of_the_records_is_documented(api: ModuleType, result: Result) -> None:
    assert list(api.COLUMNS) == list(result.records)
    assert all(documented(event) for event in result.records["event"].cat.categories)
