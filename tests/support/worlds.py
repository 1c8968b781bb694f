"""Small random runs that learn, and a look at what they compute."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from torch import Tensor

from lockstep import Scenario
from lockstep.simulator import engine
from lockstep.workloads import build
from tests.support.scenarios import scenario

TIMES = [
    {"distribution": "exponential", "mean": "10 ms"},
    {"distribution": "lognormal", "mean": "10 ms", "cv": 0.3},
    {"distribution": "pareto", "mean": "10 ms", "shape": 1.5},
]


def learning(**changes: Any) -> Scenario:
    """A noisy quadratic in 20 parameters: every worker's every gradient is another."""
    return scenario(**{"workload": {"problem": "quadratic", "batch_size": 4}, **changes})


@st.composite
def worlds(draw: st.DrawFn, servers: int = 3) -> dict[str, Any]:
    """The cluster, the seed and the end of a run: the changes that `conftest.scenario` makes."""
    network = draw(st.sampled_from([{}, {"bandwidth": "50 kB/s", "latency": "1 ms"}]))
    return {
        "cluster__workers": draw(st.integers(1, 6)),
        "cluster__servers": draw(st.integers(1, servers)),
        "cluster__network": network,
        "cluster__compute": {"time": draw(st.sampled_from(TIMES))},
        "stop": {"steps": draw(st.integers(1, 12))},
        "seed": draw(st.integers(0, 10_000)),
    }


@contextmanager
def recording() -> Iterator[dict[tuple[int, int], Tensor]]:
    """The parameters at which the simulator computes gradients, by worker and step."""
    seen: dict[tuple[int, int], Tensor] = {}

    def built(*given: Any) -> Any:
        learner = build(*given)
        gradient = learner.gradient

        def recorded(parameters: Tensor, worker: int, step: int) -> Tensor:
            seen[worker, step] = parameters
            return gradient(parameters, worker, step)

        learner.gradient = recorded  # type: ignore[method-assign]
        return learner

    with mock.patch.object(engine, "build", built):
        yield seen
