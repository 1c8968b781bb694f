"""Calibration of fewer gradients than a profile needs to be good, where what is measured is not the point."""

import pytest

from lockstep.calibration import compute, layers


def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second of gradients: to fit families to three seconds of them takes long, too."""
    assert compute.sample.__defaults__ == (compute._LEAST, compute._LEAST_S, "auto")
    monkeypatch.setattr(compute.sample, "__defaults__", (compute._LEAST, 0.1, "auto"))
    monkeypatch.setattr(layers, "_LEAST_S", 0.1)
