"""Small scenarios, and the engines that run them."""

from collections.abc import Callable
from typing import Any

import lockstep
from lockstep import Result, Scenario

SIZES = """\
# Nothing is learned here. This sentence is not shown.
name: small
cluster:
  workers: 2
  network: {bandwidth: 1 Gbit/s, latency: 50 us}
  compute: {time: {distribution: exponential, mean: 20 ms}}
workload: {parameters: 1000, batch_size: 8}
strategy: asynchronous
stop: {steps: 6}
seed: 5
"""
LEARNING = SIZES.replace("{parameters: 1000, batch_size: 8}", "{problem: quadratic, batch_size: 8}")
ENGINES: dict[str, Callable[[Scenario], Result]] = {"simulator": lockstep.simulate, "executor": lockstep.run}


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
