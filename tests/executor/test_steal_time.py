"""A run whose processors were given to others says so."""

from types import SimpleNamespace

import pytest

from lockstep.executor import steal_time


@pytest.mark.parametrize(
    ("seconds", "says"), [(0.0, []), (0.01, []), (0.12, ["6% of the processors' time went"])]
)
def test_stolen_time_is_told(seconds: float, says: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock, steal = iter((10.0, 11.0)), iter((110.07, 110.07 + seconds))
    monkeypatch.setattr("psutil.cpu_times", lambda: SimpleNamespace(user=1.0, steal=next(steal)))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    found = steal_time.StealTime()
    assert [line[: len(start)] for line, start in zip(found.disturbances(), says, strict=True)] == says


def test_a_system_that_does_not_tell_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_times", lambda: SimpleNamespace(user=1.0))
    assert steal_time.StealTime().disturbances() == []
