"""benchmarks/corpus.py: the same code writes the same corpus, and what has changed is named."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support import ROOT

BENCHMARKS = ROOT / "benchmarks"
Corpus = dict[str, dict[str, Any]]


@pytest.fixture
def corpus(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return __import__("corpus")


@pytest.fixture
def written(corpus: ModuleType) -> Callable[[], Corpus]:
    """A few scenarios: one that is shipped, random ones with and without learning, one that is refused."""

    def write() -> Corpus:
        asked = [corpus.Asked(f"random-{number}", corpus.draw(number)) for number in (2, 6, 9, 11)]
        asked.append(corpus.Asked("ssp", "strategies/ssp", ["stop={steps: 2}"]))
        return json.loads(json.dumps({one.name: corpus.entry(one) for one in asked}))

    return write


@pytest.mark.slow
def test_the_same_code_writes_the_same(
    corpus: ModuleType, written: Callable[[], Corpus], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = written(), written()
    assert [name for name, one in old.items() if "error" in one] == ["random-6", "random-11"]
    assert old["ssp"]["parameters"] is not None
    assert corpus.compare(old, new) == 0
    assert capsys.readouterr().out == "5 scenarios are in both; 0 differ.\n"


@pytest.mark.slow
def test_one_bit_of_one_record_is_noticed(
    corpus: ModuleType,
    written: Callable[[], Corpus],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, simulate = written(), corpus.lockstep.simulate

    def changed(scenario: Any) -> Any:
        result = simulate(scenario)
        if scenario.name == "ssp":
            starts = result.records["start"].to_numpy(copy=True)
            starts[-1] = np.nextafter(starts[-1], np.inf)
            result.metrics["throughput"] += 1  # found before the records are another
            result.records["start"] = starts
        return result

    monkeypatch.setattr(corpus.lockstep, "simulate", changed)
    assert corpus.compare(old, written()) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ssp: metrics.throughput ")
    assert lines[1] == "ssp: other bits in records.start"
    assert lines[2:] == [
        "5 scenarios are in both; 1 differ.",
        "     1 metrics.throughput",
        "     1 records.start",
    ]


@pytest.mark.slow
def test_a_scenario_that_is_missing_and_another_error_are_noticed(
    corpus: ModuleType, written: Callable[[], Corpus]
) -> None:
    old, new = written(), written()
    del new["ssp"]
    new["random-6"]["error"][1] = "other words"
    assert [found[:2] for found in corpus.differences(old, new)] == [("random-6", "error"), ("ssp", "")]


def test_only_values_count_not_the_types_that_hold_them(corpus: ModuleType) -> None:
    narrow = pd.DataFrame({"a": np.array([1, 2], "i4"), "b": pd.Categorical(["x", "y"]), "c": [0.5, np.nan]})
    wide = pd.DataFrame({"c": [0.5, -np.nan], "b": ["x", "y"], "a": np.array([1, 2], "i8")})
    assert corpus._digest(narrow) == corpus._digest(wide)
    assert corpus._digest(narrow)["c"] != corpus._digest(narrow.fillna(0.0))["c"]


def test_random_scenarios_are_the_same_for_ever(corpus: ModuleType) -> None:
    """A draw that changes makes every corpus that is already written worthless."""
    drawn = corpus._sha256(corpus._canonical([corpus.draw(number) for number in range(corpus.RANDOM)]))
    assert drawn == "c9ab5eabd018b7bb17621ead51465b8098e0751b5ef2060fc5d686561dbe32c9"
