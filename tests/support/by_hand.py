"""Papers followed by hand: what a run of ours on the quadratic should end with, in double precision.

Compute times are constant and no two workers finish at the same instant. The hand computations know nothing
of strategies/: they have the gradients, and an agenda where things happen in an order.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import lockstep
from lockstep import Result, Scenario
from lockstep.workloads import build
from tests.support.worlds import learning

Vector = NDArray[np.float64]
Gradient = Callable[[Vector, int, int], Vector]

RATE = 0.15
WORKERS = 4
SLOWDOWNS = [1.0, 1.3137, 1.7391, 2.9173]
LATENCY = 0.0237  # s, where there is one
# Ours is in single precision: up to 5e-7 of parameters of 2 were seen; wrong arithmetic by 1e-3 or more.
ROUNDING = 3e-6


def config(
    strategy: dict[str, Any], *, latency: bool = False, workers: int = WORKERS, **more: Any
) -> Scenario:
    slow = [{"worker": worker, "slowdown": SLOWDOWNS[worker]} for worker in range(1, min(workers, WORKERS))]
    return learning(
        cluster__workers=workers,
        cluster__stragglers=slow,
        cluster__network={"latency": f"{LATENCY} s"} if latency else {},
        strategy={"learning_rate": RATE, **strategy},
        **more,
    )


def begin(config: Scenario) -> tuple[Vector, Gradient]:
    """The start, and g(x, worker, number of its mini-batch)."""
    learner = build(config.workload, config.cluster.workers, config.seed)

    def gradient(x: Vector, worker: int, step: int) -> Vector:
        return learner.gradient(torch.from_numpy(x).float(), worker, step).double().numpy()

    return learner.initial().double().numpy(), gradient


def named(value: Any) -> str:
    """A parameter of a test, in its name."""
    return "hand" if callable(value) else str(value)


def ends_with(config: Scenario, expected: Vector) -> Result:
    result = lockstep.simulate(config)
    assert np.abs(result.parameters - expected).max() < ROUNDING
    return result


def finished(steps: int, workers: int = WORKERS) -> list[tuple[int, int]]:
    """Who finishes which mini-batch, in order, where nobody waits and messages take no time."""
    order = sorted((SLOWDOWNS[i] * (k + 1), i, k) for i in range(workers) for k in range(steps))
    return [(i, k) for _, i, k in order]


class Agenda:
    """What happens when; of what happens at one instant, what was noted first comes first."""

    def __init__(self) -> None:
        self.now, self._noted, self._due = 0.0, 0, list[Any]()

    def after(self, seconds: float, do: Callable[..., None], *given: Any) -> None:
        self._noted += 1
        heappush(self._due, (self.now + seconds, self._noted, do, given))

    def compute(self, worker: int, do: Callable[..., None], *given: Any) -> None:
        self.after(0.01 * SLOWDOWNS[worker], do, worker, *given)

    def run(self) -> None:
        while self._due:
            self.now, _, do, given = heappop(self._due)
            do(*given)
