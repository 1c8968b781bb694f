"""A worker's own steps take its time, with every strategy whose workers make some."""

from typing import Any

import pytest

import lockstep
from lockstep.strategies.optimizers import optimizer
from lockstep.strategies.touched import passes_of_step
from tests.support.scenarios import scenario

PERIODS = {"communication_window": 3}, {"averaging_period": 3}
# From one gradient to the next, where nothing is sent or sending takes no time: pieces of work, and passes
# over the parameters.
STEPS: list[tuple[dict[str, Any], int, float]] = [
    *(({"name": name, **PERIODS[0]}, 1, 6) for name in ("agn", "downpour", "downpour-blocking")),
    ({"name": "ssp"}, 2, 3 + 3),  # the step, and its own deltas added to the copy
    *(({"name": name, **PERIODS[0]}, 1, 3) for name in ("easgd", "aeasgd")),
    ({"name": "eamsgd", **PERIODS[0]}, 1, 11),
    *(({"name": name, **PERIODS[1]}, 1, 6) for name in ("model-averaging", "local-sgd")),
    ({"name": "diloco", "optimizer": "sgd", **PERIODS[1]}, 1, 6),
    ({"name": "diloco", "optimizer": "adam", **PERIODS[1]}, 1, 29),
    ({"name": "diloco", **PERIODS[1]}, 1, 32),  # and the weights, read, are added to adam's direction
    ({"name": "local-sgd", "momentum": 0.9, **PERIODS[1]}, 1, 11),
    ({"name": "fedavg", "local_epochs": 3}, 1, 3),
    ({"name": "all-reduce"}, 2, 3 + 1.5),  # a ring adds halves
    ({"name": "d-psgd"}, 2, 3 + 9),
    ({"name": "sgp"}, 2, 3 + 3),
    ({"name": "osgp", "overlap": 0}, 2, 3 + 3),
    ({"name": "streaming-diloco", "optimizer": "sgd", **PERIODS[1]}, 1, 6),
]


@pytest.mark.parametrize(("strategy", "pieces", "passes"), STEPS, ids=str)
def test_a_step_takes_time(strategy: dict[str, Any], pieces: int, passes: float) -> None:
    records = lockstep.simulate(scenario(
        cluster__workers=2, cluster__workers_per_host=2, strategy=strategy, stop__steps=4,
        cluster__apply_overhead="2 ms", cluster__memory_bandwidth="4 MB/s",  # 1 ms for 1,000 parameters
    )).records  # fmt: skip
    own = records[(records.event == "gradient") & (records.node == 0)]
    assert own.start.iloc[1] - own.end.iloc[0] == pytest.approx(2e-3 * pieces + 1e-3 * passes)


def test_passes_of_a_step() -> None:
    assert passes_of_step(optimizer(optimizer="sgd")) == 3  # x + (−η)g
    assert passes_of_step(optimizer(optimizer="sgd"), additions=2) == 6
