"""Each strategy's docstring says what it does when a process fails."""

import sys

import pytest

from lockstep.strategies import STRATEGIES


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_happens_under_failure_is_in_the_docstring(name: str) -> None:
    """Of what decides it: the synchronisation model, or the program without servers, or their module."""
    strategy = STRATEGIES[name]
    decides = strategy.consistency or strategy.worker_loop
    told = decides.__doc__ or ""
    if strategy.consistency is None and "Failure:" not in told:
        told = sys.modules[decides.__module__].__doc__ or ""
    _, _, what = told.partition("Failure:")
    assert what.strip(), f"{name}: {decides.__name__} does not say"
    if strategy.elastic:  # who are there go on, however the text says so
        assert "run ends" not in what
