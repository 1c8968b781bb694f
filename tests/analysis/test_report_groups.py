"""A report of a folder of several kinds: what it says of each, and what it says that it left out."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

import lockstep
from lockstep.analysis import report
from lockstep.analysis.report import pictures
from tests.support.command_line import Lockstep, fine

SIZES = ["stop={steps: 4}", "cluster.workers=2"]


@pytest.fixture(scope="module", autouse=True)
def _few_pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "_KINDS", {"throughput": pictures._KINDS["throughput"]})
        yield


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two workloads, one of them measured too, and what a report of single runs cannot take in."""
    folder = tmp_path_factory.mktemp("mixed")
    for name, changes in {
        "large/all-reduce": ["strategy=all-reduce"],
        "large/ssp": ["strategy=ssp"],
        "small": ["workload={parameters: 1000}", "strategy=ssp", "name=small"],
    }.items():
        result = lockstep.simulate(lockstep.load("sizes-only", [*SIZES, *changes]))
        result.save(folder / name)
    measured = lockstep.simulate(lockstep.load("sizes-only", [*SIZES, "strategy=ssp"]))
    vars(measured)["engine"] = "executor"
    measured.save(folder / "real")
    swept = lockstep.load("sizes-only", [*SIZES, "sweep={cluster.workers: [1, 2]}"])
    lockstep.sweep(swept, out=folder / "swept", jobs=1, records_of=[0])
    (folder / "killed").mkdir()
    (folder / "killed" / "records.parquet").touch()
    return folder


def sentences(page: str) -> list[str]:
    return [unescape(text) for text in re.findall(r'class="answer[^"]*">(.*?)</p>', page, re.DOTALL)]


@pytest.mark.slow
def test_each_sentence_is_of_one_engine_and_one_workload(mixed: Path) -> None:
    gathered = report.gather(mixed)
    assert len(gathered.runs) == 4  # not those below a sweep
    page = report.page(gathered, {})
    said = sentences(page)
    assert [re.split(r": | \(", each)[0] for each in said] == [
        "Predicted, 25,600,000 parameters",
        "Measured, 25,600,000 parameters",
        "Predicted, 1,000 parameters",
    ]
    large, real, small = said
    assert re.match(r".*: (all-reduce|ssp) has the highest throughput: ", large)
    assert ": ssp with 2 workers processes" in real
    assert ": ssp with 2 workers processes" in small
    assert "are not compared" in page
    assert f"<h1>{mixed.name}</h1>" in page  # of several scenarios none gives the page its name


@pytest.mark.slow
def test_what_is_left_out_is_named(mixed: Path, command: Lockstep, tmp_path: Path) -> None:
    ended = command("report", mixed, "--no-why", "--out", tmp_path / "page.html")
    fine(ended)
    said = ["killed: the run in it has not ended", "swept: a sweep, which has a report of its own"]
    assert ended.err.splitlines() == [f"left out: {each}" for each in said]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    head = page[page.index("<header>") : page.index("</header>")]
    assert all(f"Left out: {each}." in head for each in said)


@pytest.mark.slow
def test_pictures_are_of_one_workload_each(mixed: Path) -> None:
    titles = [picture.title for picture in pictures.pictures(report.gather(mixed))]
    assert titles
    assert all(re.search(r": (25,600,000|1,000) parameters", title) for title in titles)


def test_a_folder_of_sweeps_alone_says_so(mixed: Path, tmp_path: Path, command: Lockstep) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "swept").symlink_to(mixed / "swept", target_is_directory=True)
    lockstep.sweep("sizes-only", out=tmp_path / "all" / "other", jobs=1)
    ended = command("report", tmp_path / "all")
    assert ended.status == 2
    assert "there are no runs in it (other: a sweep, which has a report of its own)" in ended.err
