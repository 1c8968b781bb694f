"""docs/bandwidths.md has what benchmarks/streaming_diloco.py gives: rows of each kind, and all at night."""

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from lockstep.studies.accuracy_suite.tables import between_markers
from lockstep.studies.published.table import read
from tests.support import ROOT
from tests.support.nightly import drawn

PAGE = (ROOT / "docs" / "bandwidths.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def make() -> Iterator[ModuleType]:
    """The program that writes the page's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield import_module("streaming_diloco")


@pytest.mark.parametrize(
    "method",
    drawn(["data-parallel", "diloco", "streaming-diloco", "streaming-diloco-overlapped-4-bit"], one_in=2),
)
def test_the_smallest_model_s_rows(make: ModuleType, method: str) -> None:
    assert f"\n{make.table_row(method, '1B')}\n" in PAGE, "out of date: make docs"


@pytest.mark.nightly
def test_the_whole_table(make: ModuleType) -> None:
    assert between_markers(PAGE, make.table(), make.NAME) == PAGE, "out of date: make docs"


def test_the_published_bandwidths_are_on_the_grid(make: ModuleType) -> None:
    """They are given to a tenth, some rounded and some cut off, and 323.75 is given as 323.8."""
    given = read("streaming-diloco-2025").facts["needed_gbit_per_s"].astype(float)
    for row, value in zip(make.rows(), given, strict=True):
        assert -0.1 < value - make.GRID[row.published] < 0.055, row


def test_data_parallel_in_a_closed_form(make: ModuleType) -> None:
    """A full network: forward, the last layer's backward, then one layer's sum after the other."""
    row = next(row for row in make.rows() if row.method == "data-parallel")
    place = row.published
    seconds = row.step_s * (1 / 3 + 2 / 3 / row.layers) + make.BITS / make.GRID[place]
    assert seconds > row.step_s * 1.2
    for reading in make.READINGS:
        assert make.utilisation(row, reading, place) == pytest.approx(row.step_s / seconds, rel=1e-6)
