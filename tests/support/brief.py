"""Calibration of fewer gradients than a profile needs to be good, where what is measured is not the point."""

import pytest

from lockstep.calibration import compute, layers


def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few gradients as count, and not three seconds of them, to which fitting families takes long, too."""
    assert compute.sample.__defaults__ == (compute._LEAST, compute._LEAST_S, "auto")
    monkeypatch.setattr(compute.sample, "__defaults__", (compute._LEAST, 0.0, "auto"))
    monkeypatch.setattr(layers, "_LEAST_S", 0.1)
