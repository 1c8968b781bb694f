"""Overlap SGP: what no overlap is, the mass that push-sum keeps, by hand, and how long a step takes."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario
from lockstep.strategies import push_sum, sgp
from lockstep.workloads.problems import Quadratic
from tests.support.by_hand import RATE, begin, ends_with
from tests.support.nightly import examples
from tests.support.scenarios import scenario
from tests.support.worlds import learning

COMPUTE = 0.010  # s


@pytest.mark.parametrize(
    "graph", ["exponential", "ring", "complete", [[0, 1], [1, 2], [1, 3], [1, 4]]], ids=str
)
def test_without_overlap_it_is_sgp_bit_for_bit(engine: Any, graph: Any) -> None:
    """In the star of the last graph some hear from several workers, and some from none."""
    found = [
        engine(
            learning(
                cluster__workers=5, cluster__network={"latency": "2 ms"}, stop={"steps": 12},
                cluster__compute={"time": {"distribution": "lognormal", "mean": "3 ms", "cv": 0.5}},
                strategy={"momentum": 0.5, "graph": graph, **strategy},
            )
        ).parameters
        for strategy in ({"name": "osgp", "overlap": 0}, {"name": "sgp"})
    ]  # fmt: skip
    assert np.array_equal(*found)


def constant_gradient(self: Quadratic, parameters: Any, worker: int, step: int) -> torch.Tensor:
    """Every worker has its own, whatever the parameters."""
    return torch.full((5,), float(worker + 1))


class Watched(push_sum.PushSum):
    """Knows all parts of a run."""

    parts: list["Watched"] = []  # noqa: RUF012

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.parts.append(self)


@examples(0.5)
@given(
    workers=st.integers(1, 7), overlap=st.integers(0, 4), steps=st.integers(1, 12),
    latency=st.sampled_from(["0 s", "7 ms", "200 ms"]), cv=st.sampled_from([0.01, 0.8]),
    graph=st.sampled_from(["exponential", "ring", "complete", "torus"]),
)  # fmt: skip
def test_mass_is_kept(workers: int, overlap: int, steps: int, latency: str, cv: float, graph: str) -> None:
    """In the end weights sum to n, and parts to all steps from 0; every half has been merged."""
    Watched.parts.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sgp, "PushSum", Watched)
        patch.setattr(Quadratic, "gradient", constant_gradient)
        result = lockstep.simulate(
            scenario(
                cluster__workers=workers, cluster__network={"latency": latency}, stop={"steps": steps},
                cluster__compute={"time": {"distribution": "lognormal", "mean": "10 ms", "cv": cv}},
                strategy={"name": "osgp", "overlap": overlap, "graph": graph, "learning_rate": RATE},
                workload={"problem": "quadratic", "dimension": 5},
            )
        )  # fmt: skip
    assert len(Watched.parts) == workers
    assert sum(part.weight for part in Watched.parts) == workers  # halves of halves: exact
    total = sum(part.x for part in Watched.parts).numpy()
    assert total == pytest.approx(np.full(5, -RATE * steps * workers * (workers + 1) / 2), rel=1e-5)
    updates = result.records[result.records["event"] == "update"]
    sent = result.records[result.records["kind"] == "half"]
    assert (
        (updates["batches"] == 0).sum() == len(sent) == (workers > 1) * workers * -(-steps // max(overlap, 1))
    )


def run(overlap: int, latency: float, **more: Any) -> Scenario:
    """Workers that are as fast."""
    strategy = {"name": "osgp", "overlap": overlap, "learning_rate": RATE}
    return learning(
        **{"cluster__workers": 4, "stop": {"steps": 13}, "strategy": strategy, **more},
        cluster__compute={"time": {"distribution": "constant", "value": f"{COMPUTE} s"}},
        cluster__network={"latency": f"{latency} s"},
    )


@pytest.mark.parametrize(
    ("overlap", "latency", "lag"),
    [(0, 0.005, 0), (1, 0.005, 1), (1, 0.025, 1), (2, 0.005, 1), (2, 0.015, 2), (4, 0.025, 3)],
)
def test_by_hand(overlap: int, latency: float, lag: int) -> None:
    """Assran et al. 2019, algorithm 2, where halves are merged so many steps after they were sent."""
    config = run(overlap, latency)
    start, g = begin(config)
    x, w, sent = [start] * 4, [1.0] * 4, {}
    for k in range(13):
        x = [x[i] - RATE * g(x[i] / w[i], i, k) for i in range(4)]
        if k % max(overlap, 1) == 0:
            x, w = [each / 2 for each in x], [each / 2 for each in w]
            sent[k] = x, w, 2 ** (len(sent) % 2)
        for at in [at for at in sent if at + lag == k or (k == 12 and at + lag > k)]:
            halves, weights, ahead = sent[at]
            x = [x[i] + halves[i - ahead] for i in range(4)]
            w = [w[i] + weights[i - ahead] for i in range(4)]
    ends_with(config, np.mean([each / weight for each, weight in zip(x, w, strict=True)], axis=0))


@pytest.mark.parametrize(
    ("overlap", "latency", "step_s"),
    [(0, 0.008, 0.018), (1, 0.008, 0.010), (1, 0.025, 0.0175), (2, 0.025, 0.01125), (3, 0.025, 0.010)],
)
def test_what_travels_for_no_longer_than_overlap_steps_costs_no_time(
    overlap: int, latency: float, step_s: float
) -> None:
    """A half takes the latency l alone. It is sent before the last one is waited for: two are under way.

    So in the long run a step takes max(c, (c + l/τ)/2), c its computing; with τ = 0 it is c + l.
    """
    took = [
        lockstep.simulate(run(overlap, latency, workload={"parameters": 1000}, stop={"steps": steps}))
        for steps in (13, 73)
    ]
    more = took[1].metrics["duration_s"] - took[0].metrics["duration_s"]
    assert more / 60 == pytest.approx(step_s)
