"""Shared by all tests: small scenarios, and both engines."""

from collections.abc import Callable
from typing import Any

import pytest

import lockstep
from lockstep import Result, Scenario


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
