"""Pipe-SGD: what no delay is, how long a step takes, and that it is delayed SGD."""

from typing import Any

import numpy as np
import pytest

import lockstep
from tests.support.by_hand import RATE, WORKERS, begin, config, ends_with
from tests.support.scenarios import scenario
from tests.support.worlds import learning

COMPUTE = 0.010  # s


def seconds(bandwidth: str, delay: int, steps: int = 5) -> float:
    """Of sums of 4 kB by two workers: each sends 4 kB."""
    run = scenario(
        cluster__workers=2, cluster__network={"bandwidth": bandwidth}, stop={"steps": steps},
        strategy={"name": "pipe-sgd", "delay": delay},
    )  # fmt: skip
    return float(lockstep.simulate(run).metrics["duration_s"])


def test_a_step_takes_the_longer_of_computing_and_summing() -> None:
    """Sums of 8 ms are hidden but for the last; sums of 40 ms hide all gradients but the first."""
    assert seconds("500 kB/s", delay=1) == pytest.approx(5 * COMPUTE + 0.008)
    assert seconds("100 kB/s", delay=1) == pytest.approx(COMPUTE + 5 * 0.040)
    assert seconds("500 kB/s", delay=0) == pytest.approx(5 * (COMPUTE + 0.008))


def test_a_longer_delay_hides_latency() -> None:
    """K = delay + 1 sums go on beside each other: K gradients in compute + sum, or as fast as computed."""

    def took(delay: int) -> float:
        run = scenario(
            cluster__workers=2, cluster__network={"latency": "12 ms"}, stop={"steps": 20},
            strategy={"name": "pipe-sgd", "delay": delay},
        )  # fmt: skip
        return float(lockstep.simulate(run).metrics["duration_s"])

    total = 2 * 0.012
    assert took(0) == pytest.approx(20 * (COMPUTE + total))
    assert took(1) == pytest.approx(20 / 2 * (COMPUTE + total) + COMPUTE)  # the last one is behind another
    assert took(3) == pytest.approx(20 * COMPUTE + total)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_without_delay_it_is_all_reduce_bit_for_bit(engine: Any, optimizer: str) -> None:
    pair: list[dict[str, Any]] = [{"name": "pipe-sgd", "delay": 0}, {"name": "all-reduce"}]
    found = [
        engine(
            learning(cluster__workers=3, strategy={"optimizer": optimizer, **each}, stop={"steps": 7})
        ).parameters
        for each in pair
    ]
    assert np.array_equal(*found)


@pytest.mark.parametrize("delay", [0, 1, 2, 5])
def test_by_hand(delay: int) -> None:
    """x(t+1) = x(t) − η·mean g(x(t − delay)), from x(0) on until there is one that old."""
    run = config({"name": "pipe-sgd", "delay": delay}, stop={"steps": 9})
    x, g = begin(run)
    models = [x]
    for step in range(9):
        old = models[max(0, step - delay)]
        gradients = [g(old, worker, step) for worker in range(WORKERS)]
        models.append(models[-1] - RATE * np.mean(gradients, axis=0))
    ends_with(run, models[-1])
