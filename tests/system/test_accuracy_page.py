"""The published accuracy is what the committed measurements and this simulator give: see `make accuracy`."""

import pytest

from lockstep.studies.accuracy_suite import campaign, suite
from lockstep.studies.accuracy_suite.comparing import compare
from lockstep.studies.accuracy_suite.predicting import predict
from lockstep.studies.accuracy_suite.summary import summarise
from lockstep.studies.accuracy_suite.tables import between_markers, markdown
from tests.support import ROOT

TRUTH = ROOT / "benchmarks" / "truth"
SOURCE = suite.read(TRUTH)
PREDICTED = campaign.load(TRUTH, "predicted.parquet")
POINTS = campaign.points(SOURCE.rows)
QUICK = [point.name for point in POINTS if point.part == "rates"]
A_FEW = sorted({QUICK[len(QUICK) * i // 5] for i in range(5)})  # a second in all


def test_the_page_has_the_figures_of_the_committed_data() -> None:
    figures = markdown(summarise(compare(SOURCE.rows, PREDICTED)))
    page = (ROOT / "docs" / "accuracy.md").read_text("utf-8")
    assert between_markers(page, figures) == page, "the figures have changed: make accuracy"


@pytest.mark.slow
@pytest.mark.parametrize("name", A_FEW)
def test_the_committed_predictions_are_those_of_this_simulator(name: str) -> None:
    (point,) = (point for point in POINTS if point.name == name)
    (published,) = (dict(row) for row in PREDICTED if row["name"] == name)
    assert published.pop("error") is None
    published.pop("name")
    now = predict(point, SOURCE.profiles, SOURCE.campaign)
    assert now == published, "the simulator predicts something else than was published: make accuracy"


def test_the_data_are_small_and_say_where_they_are_from() -> None:
    assert sum(file.stat().st_size for file in TRUTH.iterdir()) < 1 << 20
    assert {"processor", "cores", "system", "date"} <= SOURCE.campaign.machine.keys()
