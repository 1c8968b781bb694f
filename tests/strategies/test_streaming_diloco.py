"""Streaming DiLoCo: what it is without streaming, by hand, how long it takes, and how many bytes it sends."""

from typing import Any

import numpy as np
import pytest
import torch

import lockstep
from lockstep import Scenario
from lockstep.strategies.placement import cut
from lockstep.workloads import codecs
from tests.support.by_hand import WORKERS, Vector, begin, config, ends_with
from tests.support.scenarios import scenario
from tests.support.worlds import learning

WITHOUT = {"fragments": 1, "overlap": 0, "mixing": 0.0}


@pytest.mark.parametrize("steps", [3, 10, 11])
@pytest.mark.parametrize(
    "more", [{}, {"optimizer": "sgd", "momentum": 0.9}, {"outer_momentum": 0.0}], ids=str
)
def test_whole_and_not_overlapped_it_is_diloco_bit_for_bit(
    engine: Any, steps: int, more: dict[str, Any]
) -> None:
    found = [
        engine(
            learning(
                cluster__workers=3, stop={"steps": steps},
                strategy={"averaging_period": 5, **more, **strategy},
            )
        )
        for strategy in ({"name": "streaming-diloco", **WITHOUT}, {"name": "diloco"})
    ]  # fmt: skip
    assert np.array_equal(*(result.parameters for result in found))
    assert found[0].metrics["updates"] == found[1].metrics["updates"]


def test_without_overlap_it_takes_as_long_as_diloco() -> None:
    """If it mixes and has fragments, too: as many bytes, one after the other, and there is no latency."""
    runs = [
        lockstep.simulate(
            scenario(
                cluster__network={"bandwidth": "1 MB/s"}, stop={"steps": 24}, workload={"parameters": 1600},
                strategy={"averaging_period": 8, "fragments": 4, "overlap": 0, "name": name},
            )
        ).metrics
        for name in ("streaming-diloco", "diloco")
    ]  # fmt: skip
    # the fragments' first turns are early: three of them once more in the end
    more = 3 * 1600 * 4 / 1e6 * 1.5 / 4
    assert runs[0]["duration_s"] == pytest.approx(runs[1]["duration_s"] + more)


def e3m0(delta: Vector) -> Vector:
    codec = ("e3m0", 0.01)
    body = codecs.encode(torch.from_numpy(delta).float(), codec)
    return codecs.decode(body, codec, len(delta)).double().numpy()


def by_hand(run: Scenario, period: int, fragments: int, overlap: int, mixing: float, coded: bool) -> Vector:
    """Douillard et al. 2025, algorithm 2, SGD inside, and outside torch's SGD(0.7, 0.9, nesterov=True)."""
    start, g = begin(run)
    own, common, buffer = [start.copy() for _ in range(WORKERS)], start.copy(), 0 * start
    places = cut(len(start), [1] * fragments)
    sums: dict[int, tuple[int, Vector]] = {}  # by fragment: when begun, and the mean

    def send(p: int, step: int) -> None:
        deltas = [common[places[p]] - mine[places[p]] for mine in own]
        sums[p] = step, np.mean([e3m0(-d) * -1 if coded else d for d in deltas], axis=0)

    def receive(p: int) -> None:
        place, (_, mean) = places[p], sums.pop(p)
        buffer[place] = 0.9 * buffer[place] + mean
        common[place] -= 0.7 * (mean + 0.9 * buffer[place])
        for mine in own:
            mine[place] = mixing * mine[place] + (1 - mixing) * common[place]

    steps, last = 23, [0] * fragments
    for step in range(1, steps + 1):
        own = [mine - 0.1 * g(mine, i, step - 1) for i, mine in enumerate(own)]
        for p in range(fragments):
            if (step - period * (p + 1) // fragments) % period == 0:
                send(p, step)
                last[p] = step
        for p in [p for p, (begun, _) in sums.items() if begun + overlap <= step]:
            receive(p)
    for p in [*sums]:
        receive(p)
    for p in [p for p in range(fragments) if last[p] < steps]:
        send(p, steps)
    for p in [*sums]:
        receive(p)
    return common


@pytest.mark.parametrize(
    ("period", "fragments", "overlap", "mixing", "codec"),
    [(6, 3, 0, 0.0, "none"), (6, 3, 2, 0.0, "none"), (6, 3, 1, 0.5, "none"), (5, 2, 4, 0.25, "none"),
     (3, 8, 2, 0.5, "none"), (6, 1, 3, 0.5, "none"), (6, 3, 1, 0.5, "e3m0")],
)  # fmt: skip
def test_by_hand(period: int, fragments: int, overlap: int, mixing: float, codec: str) -> None:
    strategy = {
        "name": "streaming-diloco", "averaging_period": period, "fragments": fragments, "overlap": overlap,
        "mixing": mixing, "codec": codec, "optimizer": "sgd", "learning_rate": 0.1,
    }  # fmt: skip
    run = config(strategy, stop={"steps": 23})
    ends_with(run, by_hand(run, period, fragments, overlap, mixing, codec != "none"))


@pytest.mark.parametrize(
    ("overlap", "bandwidth", "more_s"),
    [(0, 500e3, 0.008), (1, 500e3, 0.0), (1, 200e3, 0.010), (2, 200e3, 0.0), (3, 50e3, 0.050)],
)
def test_a_sum_of_less_than_overlap_steps_costs_no_time(
    overlap: int, bandwidth: float, more_s: float
) -> None:
    """Two workers sum 4 kB every 10 steps of 10 ms: each sends them once; what lasts longer is waited for."""
    took = [
        lockstep.simulate(
            scenario(
                cluster__workers=2, cluster__network={"bandwidth": f"{bandwidth} B/s"}, stop={"steps": steps},
                strategy={
                    "name": "streaming-diloco", "averaging_period": 10, "fragments": 1, "overlap": overlap,
                },
            )
        ).metrics["duration_s"]
        for steps in (15, 65)
    ]  # fmt: skip
    assert took[1] - took[0] == pytest.approx(5 * (10 * 0.010 + more_s))


@pytest.mark.parametrize(("codec", "bits"), [("none", 32), ("bf16", 16), ("e3m0", 4 + 32 / 256)])
def test_bytes_of_a_period(codec: str, bits: float) -> None:
    """With two workers each sends every parameter once a period, whatever the fragments."""
    n, periods = 2**20, 3
    run = scenario(
        cluster__workers=2, workload={"parameters": n}, stop={"steps": 10 * periods},
        strategy={"name": "streaming-diloco", "averaging_period": 10, "fragments": 4, "codec": codec},
    )  # fmt: skip
    # three of four fragments have their first turn early: once more in the end
    expected = 2 * n * bits / 8 * (periods + 3 / 4)
    assert lockstep.simulate(run).metrics["bytes_sent"] == pytest.approx(expected)
