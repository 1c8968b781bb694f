"""The published accuracy is what the committed measurements and this simulator give: see `make accuracy`."""

import pytest

from benchmarks.accuracy import FOLDERS, TRUTH
from lockstep.studies.accuracy_suite import campaign, suite
from lockstep.studies.accuracy_suite.comparing import compare
from lockstep.studies.accuracy_suite.point import Point
from lockstep.studies.accuracy_suite.predicting import predict
from lockstep.studies.accuracy_suite.summary import summarise
from lockstep.studies.accuracy_suite.tables import between_markers, markdown
from tests.support import ROOT

SOURCES = {folder: suite.read(TRUTH / folder) for folder in FOLDERS}
PREDICTED = {folder: campaign.load(TRUTH / folder, "predicted.parquet") for folder in FOLDERS}
QUICK = [
    (folder, point)
    for folder, source in SOURCES.items()
    for point, row in zip(campaign.points(source.rows), source.rows, strict=True)
    if point.part != "learning" and row["duration_s"] < 20
]
A_FEW = [QUICK[len(QUICK) * i // 9] for i in range(9)]  # some seconds in all


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_page_has_the_figures_of_the_committed_data(folder: str) -> None:
    figures = markdown(summarise(compare(SOURCES[folder].rows, PREDICTED[folder])))
    page = (ROOT / "docs" / "accuracy.md").read_text("utf-8")
    same = between_markers(page, figures, FOLDERS[folder][0])
    assert same == page, "the figures have changed: make accuracy"


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "point"), A_FEW, ids=lambda each: getattr(each, "name", each))
def test_the_committed_predictions_are_those_of_this_simulator(folder: str, point: Point) -> None:
    (published,) = (dict(row) for row in PREDICTED[folder] if row["name"] == point.name)
    assert published.pop("error") is None
    published.pop("name")
    now = predict(point, SOURCES[folder].profiles, SOURCES[folder].campaign)
    assert now == published, "the simulator predicts something else than was published: make accuracy"


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_data_are_small_and_say_where_they_are_from(folder: str) -> None:
    assert sum(file.stat().st_size for file in (TRUTH / folder).iterdir()) < 1 << 20
    assert {"processor", "cores", "system", "date"} <= SOURCES[folder].campaign.machine.keys()
