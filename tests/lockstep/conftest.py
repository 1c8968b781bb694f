"""Fixtures of the verbs."""

import pytest

from lockstep import recommendation
from lockstep.recommendation import runs, space
from lockstep.recommendation.what_if import CHANGES


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers, two seeds, few knobs, and only what is asked of the bandwidth: to be fast."""
    monkeypatch.setattr(space, "_WORKERS", (1,))
    monkeypatch.setattr(recommendation, "SEEDS", 2)
    few = [*list(CHANGES)[:2], "no stragglers"]
    monkeypatch.setattr(recommendation, "CHANGES", {key: CHANGES[key] for key in few})
    monkeypatch.setattr(runs, "EXCHANGES", 12)
    monkeypatch.setitem(space.KNOBS, "algorithm", lambda _: ("ring",))
    for key in ("buckets", "chunks"):
        monkeypatch.setitem(space.KNOBS, key, lambda _: (1,))
