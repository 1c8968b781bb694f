"""Shared by all tests: small scenarios, and both engines."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

import lockstep
from lockstep import Result, Scenario

# No deadlines: machines are noisy. In CI the same examples every time; elsewhere new ones, to find more.
settings.register_profile("lockstep", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("lockstep")


def scenario(**changes: Any) -> Scenario:
    """A small sizes-only scenario: 4 workers, 1 server, constant 10 ms; `a__b=value` changes key a.b."""
    document: dict[str, Any] = {
        "name": "test",
        "cluster": {
            "workers": 4,
            "servers": 1,
            "network": {},
            "compute": {"time": {"distribution": "constant", "value": "10 ms"}},
        },
        "workload": {"parameters": 1000},
        "strategy": {"name": "asynchronous"},
        "stop": {"steps": 5},
        "seed": 3,
    }
    for key, value in changes.items():
        *path, last = key.split("__")
        place = document
        for word in path:
            place = place[word]
        place[last] = value
    return Scenario.model_validate(document)


ENGINES: dict[str, Callable[[Scenario], Result]] = {"simulator": lockstep.simulate, "executor": lockstep.run}


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Callable[[Scenario], Result]:
    """Each engine in turn."""
    return ENGINES[request.param]
