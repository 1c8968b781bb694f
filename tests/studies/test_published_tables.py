"""The published tables: what is written down, and the rules that were kept in choosing what is fitted."""

import pytest

from lockstep.studies.published import table as tables
from lockstep.studies.published.table import MOST_KEYS, MOST_ROWS, Table

ALL = [tables.read(name) for name in tables.names()]


@pytest.mark.parametrize("table", ALL, ids=lambda each: each.name)
def test_at_most_three_numbers_are_fitted_to_at_most_two_rows(table: Table) -> None:
    for series in tables.series_of(table):
        rows = int((series.facts["use"] == "fit").sum())
        assert 1 <= rows <= MOST_ROWS, series.name
        assert 1 <= len(series.free) <= min(rows, MOST_KEYS), series.name
        assert (series.facts["use"] == "predict").any(), series.name


@pytest.mark.parametrize("table", ALL, ids=lambda each: each.name)
def test_every_row_says_what_it_is_for_and_causes_are_explained(table: Table) -> None:
    facts = table.facts
    assert set(facts["use"]) == {"fit", "predict"}
    assert {*facts["cause"]} - {""} == {*table.causes}
    assert (facts[table.measure].astype(float) > 0).all()
    assert table.comments[-1].startswith("Source: ")


FACTS = {  # some of what the sources say, typed here anew
    ("cscs-2017-inception-v3", "machine", "p2.xlarge-k80", "128"): 1077.59,
    ("tensorflow-2017-hosts", "model", "resnet-152", "64"): 981,
    ("ddp-2020", "model", "resnext-101", "16"): 0.450,
    ("dlperf-2020", "framework", "mxnet", "16"): 5684.68,
    ("csc-2024-resnet-50", "machine", "lumi", "16"): 7685.47,
    ("minerva-2015", "model", "vgg", "4"): 50.26,
    ("cntk-2016-lstm", "method", "bmuf", "64"): 43.65,
    ("nvidia-2020-transformer-xl", "machine", "dgx-2h", "16"): 222920,
}


@pytest.mark.parametrize("where", FACTS)
def test_facts_are_as_published(where: tuple[str, str, str, str]) -> None:
    name, label, value, workers = where
    table = tables.read(name)
    facts = table.facts
    chosen = facts[(facts[label] == value) & (facts["cluster.workers"] == workers)]
    assert float(chosen.iloc[0][table.measure]) == FACTS[where]
