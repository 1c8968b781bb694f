"""The top of the report: what would change the answer, what it costs, how sure it is."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lockstep.analysis import report
from lockstep.analysis.gains import Gain
from lockstep.analysis.report import brief, pictures
from lockstep.analysis.report.answer import answer
from lockstep.analysis.report.points import points
from lockstep.analysis.what_if import Step, WhatIf
from tests.support.command_line import Lockstep, fine

BASE = """\
name: small
cluster:
  workers: 2
  network: {bandwidth: 100 Mbit/s, latency: 50 us}
  compute: {time: {distribution: exponential, mean: 20 ms}}
workload: {parameters: 20000, batch_size: 8}
strategy: synchronous
stop: {steps: 20}
"""
PRICED = ("--set", "cluster.price=3.6 USD/h")


@pytest.fixture(autouse=True)
def _few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        pictures, "_KINDS", {kind: pictures._KINDS[kind] for kind in ("throughput", "breakdown")}
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(BASE)
    return tmp_path / "small.yaml"


def top(page: str) -> str:
    """The text of the page before "What was asked", without its pictures."""
    head = page[page.index("<main>") : page.index('<section aria-labelledby="asked">')]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", head)).split())


def told(command: Lockstep, folder: Path, *options: str) -> str:
    """The top of the page of `lockstep report`."""
    fine(command("report", folder, *options))
    return top((folder / "report.html").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_of_one_run(file: Path, tmp_path: Path, command: Lockstep) -> None:
    out = tmp_path / "out"
    run = json.loads(fine(command("simulate", file, *PRICED, "--out", out, "--json")))
    said = told(command, out)
    assert said.index("Predicted: synchronous with 2 workers") < said.index("What would change it")
    assert re.search(r"computing, a tenth faster: [\d.]+% less time", said)
    # 2 workers' hosts and a server's, of 3.6 USD/h each: 0.003 USD a second
    dollars = 0.003 * 1e6 / run["throughput"]
    assert float(re.search(r"What it costs ([\d.]+) USD a million samples", said)[1]) == pytest.approx(  # type: ignore[index]
        dollars, rel=0.01
    )
    assert "3 hosts" in said
    assert "One run: how much of it is chance is not known" in said
    assert "Predicted, not measured." in said
    assert (out / "report.html").read_text(encoding="utf-8").count("Where the workers&#39; time goes") >= 1


@pytest.mark.slow
def test_of_a_sweep_without_a_price(file: Path, tmp_path: Path, command: Lockstep) -> None:
    out = tmp_path / "out"
    sweep = "sweep={strategy.name: [synchronous, asynchronous]}"
    fine(command("sweep", file, "--set", sweep, "--seeds", 3, "--out", out, "--quiet"))
    said = told(command, out, "--no-why")
    assert "--set 'cluster.price=3 USD/h'" in said
    assert re.search(r"3 seeds: the 95% interval of the mean is ± [\d.]+%", said)
    assert "What would change it Not tried." in said


@pytest.mark.slow
def test_of_a_recommendation(file: Path, tmp_path: Path, command: Lockstep) -> None:
    out = tmp_path / "out"
    names = ("--strategy", "synchronous", "--strategy", "all-reduce")
    fine(command("recommend", file, *names, *PRICED, "--budget", 6, "--jobs", 1, "--out", out))
    document = json.loads((out / "recommendation.json").read_text())
    said = told(command, out)
    assert f"Predicted: {document['answer']}" in said
    assert "a recommendation" in said
    assert said.count("instead of") == 3
    best = next(each for each in document["ranking"] if each["label"] == document["recommended"])
    gathered = report.gather(out)
    assert {*gathered.runs["stage"]} == {"ranking"}
    (rows,) = [rows for point, rows in gathered.runs.groupby("point") if point == best["point"]]
    assert rows["throughput"].mean() == pytest.approx(best["throughput"], rel=1e-12)
    assert report.best_run(gathered)["point"] == best["point"]  # type: ignore[index]


def test_the_what_ifs_are_those_that_matter() -> None:
    steps = (("now", 100.0), ("2× bandwidth", 95.0), ("no stragglers", 70.0), ("ideal", 50.0))
    way = WhatIf("million_s", tuple(Step(*each) for each in steps))
    gains = [Gain("computing", "the workers' computing", 0.05), Gain("latency", "latency", 0.02)]
    assert brief._tried("simulator", gains, way) == [
        "no stragglers, after 2× bandwidth: 25.0% less time",
        "the workers' computing, a tenth faster: 5.0% less time",
        "the ideal, in which only computing takes time: 50.0% less",
    ]
    alone = WhatIf("million_s", (Step("now", 100.0), Step("2× bandwidth", 99.9), Step("ideal", 99.8)))
    assert len(brief._tried("simulator", gains, alone)) == 2  # what saves 0.1% does not matter


def test_the_answer_names_what_saves_most_and_not_what_saves_nothing() -> None:
    steps = (("now", 100.0), ("2× bandwidth", 100.0), ("no stragglers", 84.0), ("ideal", 83.0))
    way = WhatIf("million_s", tuple(Step(*each) for each in steps))
    runs = pd.DataFrame([{"strategy.name": "downpour", "throughput": 300.0, "status": "ok"}])
    runs["cluster.workers"] = 4
    (point,) = points(runs, ["strategy.name", "cluster.workers"])
    for gain, said in ((0.09, "; no stragglers would save 16.0%"), (0.2, "computing, a tenth faster, would")):
        gains = [Gain("computing", "the workers' computing", gain)]
        assert said in answer([point], runs, gains, way).sentence


def test_the_models_errors_are_those_that_the_docs_have() -> None:
    page = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")
    for row, value in zip(
        ("throughput error, median", "throughput error, 90th percentile", "throughput error, maximum",
         "time to target loss, worst strategy's error (median over seeds)"),
        (*brief.THROUGHPUT_ERRORS, brief.TIME_TO_TARGET_ERROR),
        strict=True,
    ):  # fmt: skip
        found = re.search(rf"\| {re.escape(row)} \| ≤ [\d.]+% \| ([\d.]+)% \|", page)
        assert found is not None
        assert float(found[1]) == pytest.approx(100 * value)
    assert f"1, 2, 4, 8, {brief.MEASURED_WORKERS};" in page


@pytest.mark.parametrize(
    ("accuracies", "said"),
    [
        ([0.7, 0.71, 0.9, 0.91], "70 ± 6% accuracy, those of synchronous with 90 ± 6%"),
        ([0.88, 0.91, 0.9, 0.92], "(2 seeds are too few to tell these apart)"),
        ([0.95, 0.96, 0.9, 0.91], ""),
        ([None] * 4, ""),
    ],
)
def test_the_fastest_that_learned_less_says_so(accuracies: list[float | None], said: str) -> None:
    fast = {"strategy.name": "downpour", "throughput": 300.0}
    slow = {"strategy.name": "synchronous", "throughput": 100.0}
    runs = pd.DataFrame([fast, fast, slow, slow]).assign(accuracy=accuracies, seed=[0, 1, 0, 1], status="ok")
    runs["cluster.workers"] = 4
    found = answer(points(runs, ["strategy.name", "cluster.workers"]), runs).sentence
    assert found.startswith("downpour has the highest throughput")
    assert (". But that is speed alone: its runs end with" in found) == bool(said)
    assert said in found


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"target_accuracy": 0.85}, "85% accuracy"),
        ({"target.metric": "f1", "target.at_least": 0.5}, "f1 0.5"),
        ({"target.metric": "loss", "target.at_most": 0.3, "target.at_least": None}, "loss 0.3"),
    ],
)
def test_who_reaches_a_target_of_any_metric_soonest_is_the_answer(keys: dict[str, Any], wanted: str) -> None:
    fast = {"strategy.name": "downpour", "throughput": 300.0, "time_to_target_s": 9.0}
    slow = {"strategy.name": "synchronous", "throughput": 100.0, "time_to_target_s": 5.0}
    runs = pd.DataFrame([fast, slow]).assign(seed=0, status="ok")
    runs = runs.assign(**{"cluster.workers": 4, **{f"stop.{key}": value for key, value in keys.items()}})
    found = answer(points(runs, ["strategy.name", "cluster.workers"]), runs).sentence
    assert found.startswith(f"synchronous reaches {wanted} soonest: 5 s")
