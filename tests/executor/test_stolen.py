"""A run whose processors were given to others says so."""

from pathlib import Path

import pytest

from lockstep.executor import stolen


@pytest.mark.parametrize(("ticks", "says"), [(0, []), (1, []), (10, ["5% of the processors' time went"])])
def test_stolen_time_is_told(
    ticks: int, says: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, clock = tmp_path / "stat", iter((10.0, 11.0))
    monkeypatch.setattr(stolen, "_STAT", stat)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.sysconf", lambda _: 100)  # ticks a second
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    stat.write_text("cpu  5552105 169940 833097 5030499 15075 0 86046 11007 0 0\ncpu0 1 2 3\n")
    found = stolen.Stolen()
    stat.write_text(f"cpu  5552205 169940 833097 5030599 15075 0 86046 {11007 + ticks} 0 0\n")
    assert [line[: len(start)] for line, start in zip(found.warnings(), says, strict=True)] == says


def test_a_system_that_does_not_tell_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stolen, "_STAT", tmp_path / "no")
    assert stolen.Stolen().warnings() == []
