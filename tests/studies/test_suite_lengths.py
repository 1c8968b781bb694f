"""How long the suite's runs last: eight seconds, and where chance decides up to twenty-one times that."""

from dataclasses import replace

import pytest

from lockstep.studies.accuracy_suite import lengths
from lockstep.studies.accuracy_suite.grid import point
from lockstep.studies.accuracy_suite.learning import learning


def test_a_run_is_as_long_as_chance_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given = point("synchronous", 4, 1, "balanced", "none")
    expected = {
        0.0: 1,
        0.0099: 1,
        0.0101: 2,
        0.02: 4,
        0.0264: 7,
        0.0399: 16,
        0.1: 21,
    }  # the square of the spread in percent
    for spread, times in expected.items():
        monkeypatch.setattr(lengths, "spread", lambda _, spread=spread: spread)
        stop = lengths.settled(given).document["stop"]
        assert stop == {"updates": times * given.document["stop"]["updates"], "time": f"{12 * times} s"}


def test_strategies_are_not_named_but_simulated() -> None:
    steady, chancy = (point(name, 4, 1, "balanced", "none") for name in ("synchronous", "aeasgd"))
    assert lengths.settled(steady) == steady
    longer = lengths.settled(chancy)
    assert longer.document["stop"]["updates"] > chancy.document["stop"]["updates"]
    assert longer == lengths.settled(chancy)
    assert longer == replace(chancy, document=longer.document)


def test_points_that_learn_stay_as_they_are() -> None:
    assert lengths.settle(learning()[:3]) == learning()[:3]
