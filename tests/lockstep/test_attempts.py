"""What is disturbed is measured again, and marked if it stays so."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.attempts import undisturbed, unstolen
from lockstep.calibration import calibrate, codecs, save
from lockstep.calibration.estimates import Estimates
from lockstep.executor import fork_server, launch, steal_time
from tests.support.scenarios import scenario

TAKEN = "2% of the processors' time went to other guests of this machine's host"


@pytest.mark.parametrize(
    ("disturbed", "attempts", "expected"),
    [([False], 3, 1), ([True, False], 3, 2), ([True] * 3, 3, 3), ([True], 1, 1), ([True, True, False], 2, 2)],
)
def test_a_disturbed_run_is_measured_again(
    disturbed: list[bool], attempts: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = lockstep.simulate(scenario())
    found = iter([replace(result, disturbances=[TAKEN] * each) for each in disturbed])
    monkeypatch.setattr(fork_server, "start_for", lambda *_: None)
    monkeypatch.setattr(launch, "execute", lambda *_, **__: next(found))
    metrics = lockstep.run(scenario(), attempts=attempts).metrics
    assert (metrics["attempts"], metrics["disturbed"]) == (expected, disturbed[expected - 1])
    assert (TAKEN in metrics["warnings"]) == disturbed[expected - 1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 1),
        ({"testbed": True}, 3),
        ({"testbed": True, "attempts": 2}, 2),
        ({"testbed": True, "resume": True}, 1),
    ],
)
def test_who_says_nothing_has_a_run_on_the_testbed_measured_again(
    options: dict[str, Any], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(lockstep.simulate(scenario()), disturbances=[TAKEN])
    plan = lockstep.check(scenario())
    monkeypatch.setattr(lockstep, "check", lambda *_: plan)
    monkeypatch.setattr(fork_server, "start_for", lambda *_: None)
    monkeypatch.setattr(launch, "execute", lambda *_, **__: found)
    said: list[str] = []
    assert lockstep.run(scenario(), waiting=said.append, **options).attempts == expected
    again = f"disturbed ({TAKEN}): measured again, attempt {{}} of at most {expected}"
    assert said == [again.format(number) for number in range(2, expected + 1)]


@pytest.mark.parametrize(("expected", "attempts"), [(False, 3), (True, 1)])
def test_overruns_that_are_expected_are_no_disturbance(
    expected: bool, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "3 of 9 gradients took longer than their emulated time"
    found = replace(lockstep.simulate(scenario()), overruns=[line])
    monkeypatch.setattr(fork_server, "start_for", lambda *_: None)
    monkeypatch.setattr(launch, "execute", lambda *_, **__: found)
    metrics = lockstep.run(scenario(), attempts=3, overruns_expected=expected).metrics
    assert (metrics["attempts"], metrics["disturbed"]) == (attempts, not expected)
    assert line in metrics["warnings"]


def test_processors_that_others_had_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 9.0, 9.0, 9.0])  # stolen so far: at the begin and the end of each measurement
    monkeypatch.setattr(steal_time, "_seconds", lambda: next(seconds))
    values = iter("ab")
    assert unstolen(lambda: next(values)) == "b"


@pytest.mark.real
def test_what_stays_disturbed_is_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a profile, and no longer once it is measured again."""
    monkeypatch.setattr(codecs, "measure", lambda: Estimates({}, {}, {"codecs": {}}))
    stolen = count(0.0, 9.0)
    monkeypatch.setattr(steal_time, "_seconds", lambda: next(stolen))
    found = calibrate([scenario()], ["codecs"])
    assert found.profile["evidence"]["disturbed"] == ["codecs"]
    out = tmp_path / "profile.yaml"
    save.save(found, found.profile, out)
    monkeypatch.setattr(steal_time, "_seconds", lambda: 0.0)
    assert "disturbed" not in save.over(out, calibrate([scenario()], ["codecs"]))["evidence"]


def test_a_simulation_is_never_disturbed() -> None:
    metrics = lockstep.simulate(scenario()).metrics
    assert (metrics["attempts"], metrics["disturbed"]) == (1, False)
    assert undisturbed(lambda: lockstep.simulate(scenario())).attempts == 1
