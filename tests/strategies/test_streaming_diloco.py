"""Streaming DiLoCo: what it is without streaming, by hand, how long it takes, and how many bytes it sends."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import lockstep
from lockstep import Scenario, ScenarioError
from lockstep.job.plan import Plan
from lockstep.strategies.codecs import Codec
from lockstep.strategies.parts import cut
from lockstep.workloads import codecs
from tests.support.by_hand import WORKERS, Vector, begin, config, ends_with
from tests.support.nightly import drawn
from tests.support.scenarios import scenario
from tests.support.worlds import learning

WITHOUT = {"fragments": 1, "overlap": 0, "mixing": 0.0}
MLP, CNN = ({"dataset": "digits", "model": model, "batch_size": 16} for model in ("mlp", "cnn"))
TRANSFORMER = {
    "model": "transformer", "dataset": "sentences", "layers": 2, "hidden": 8, "heads": 2, "sequence": 8,
    "batch_size": 4,
}  # fmt: skip


WHOLE: list[Any] = [
    *product([3, 10, 11], [{}, {"optimizer": "sgd", "momentum": 0.9}, {"outer_momentum": 0.0}])
]


@pytest.mark.parametrize(
    ("engine", "steps", "more"),
    [*(("simulator", *case) for case in WHOLE), *drawn([("executor", *case) for case in WHOLE], 9)],
    indirect=["engine"],
    ids=str,
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


PASSES: list[dict[str, Any]] = [{"recompute": True}, {"micro_batches": 4}]


@pytest.mark.parametrize(
    ("engine", "split"),
    [
        *product(["simulator"], PASSES),
        *drawn([*product(["executor"], PASSES)], 2),
    ],
    indirect=["engine"],
    ids=str,
)
def test_so_it_is_by_units_where_diloco_computes_in_passes_too(engine: Any, split: dict[str, Any]) -> None:
    """Two workers: of more, a ring adds up in an order that goes by how long a vector is."""
    found = [
        engine(
            scenario(
                cluster__workers=2, workload=CNN, parallelism=split, stop={"steps": 12},
                strategy={"averaging_period": 5, **strategy},
            )
        )
        for strategy in ({"name": "streaming-diloco", "units": 5, **WITHOUT}, {"name": "diloco"})
    ]  # fmt: skip
    assert np.array_equal(*(result.parameters for result in found))
    assert found[0].metrics["updates"] == found[1].metrics["updates"]


@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("more", [{"overlap": 0}, {"overlap": 2}, {"codec": "bf16"}], ids=str)
def test_one_fragment_learns_the_same_by_units(units: int, more: dict[str, Any]) -> None:
    """To what passes through pieces of the model round differently."""
    strategy = {"name": "streaming-diloco", "averaging_period": 4, "fragments": 1, **more}
    whole, found = (
        lockstep.simulate(
            scenario(cluster__workers=2, workload=MLP, stop={"steps": 11}, strategy={**strategy, **by})
        )
        for by in ({}, {"units": units})
    )
    assert found.parameters == pytest.approx(whole.parameters, abs=1e-6 if "codec" not in more else 1e-3)
    assert found.metrics["updates"] == whole.metrics["updates"] == 3


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
    codec = Codec("e3m0")
    body = codecs.encode(torch.from_numpy(delta).float(), codec)
    return codecs.decode(body, codec, len(delta)).double().numpy()


def by_hand(
    run: Scenario, period: int, places: list[Any], overlap: int, mixing: float, coded: bool = False
) -> Vector:
    """Of fragments at these places.

    Douillard et al. 2025, algorithm 2, SGD inside, and outside torch's SGD(0.7, 0.9, nesterov=True).
    """
    start, g = begin(run)
    own, common, buffer = [start.copy() for _ in range(WORKERS)], start.copy(), 0 * start
    fragments = len(places)
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
    places = cut(len(begin(run)[0]), [1] * fragments)
    ends_with(run, by_hand(run, period, places, overlap, mixing, codec != "none"))


@pytest.mark.parametrize(
    ("period", "fragments", "overlap", "mixing"),
    [(6, 2, 0, 0.0), (6, 2, 2, 0.5), (5, 3, 1, 0.25), (2, 8, 1, 0.5)],
)
def test_strided_fragments_by_hand(period: int, fragments: int, overlap: int, mixing: float) -> None:
    """Fragment p is the units p, p + P, …; of three units there are no more than three fragments."""
    strategy = {
        "name": "streaming-diloco", "averaging_period": period, "fragments": fragments, "overlap": overlap,
        "mixing": mixing, "units": 3, "optimizer": "sgd", "learning_rate": 0.1,
    }  # fmt: skip
    run = config(strategy, stop={"steps": 23}, workload=TRANSFORMER)
    units = [np.r_[piece.parameters] for piece in Plan.of(run).pieces]
    places = [np.concatenate(units[p::fragments]) for p in range(min(fragments, 3))]
    ends_with(run, by_hand(run, period, places, overlap, mixing))


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


@pytest.mark.parametrize(
    ("strategy", "step_s"),
    [
        ({"overlap": 0}, 0.060 + 0.064),  # after a step, and before the next
        # forward, then the last layer's backward, then one layer's sum after the other: layer 0's is the last
        ({"overlap": 0, "units": 8}, 0.020 + 0.005 + 0.064),
    ],
    ids=str,
)
def test_by_units_the_passes_hide_the_sums(strategy: dict[str, Any], step_s: float) -> None:
    """Eight layers of 2.5 ms forward, 5 ms backward and 8 ms on a link."""
    took = [
        lockstep.simulate(
            scenario(
                cluster__workers=2, cluster__network={"bandwidth": "500 kB/s"}, stop={"steps": steps},
                cluster__compute={
                    "time": {"distribution": "constant", "value": "60 ms"}, "backward": 2 / 3,
                },
                workload={"parameters": 8000, "layers": 8, "activation": "4 B"},
                strategy={"name": "streaming-diloco", "averaging_period": 1, "fragments": 1, **strategy},
            )
        ).metrics["duration_s"]
        for steps in (3, 6)
    ]  # fmt: skip
    assert (took[1] - took[0]) / 3 == pytest.approx(step_s)


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"strategy__units": 9}, "strategy.units", "must be at most 5, as many as there are layers, not 9"),
        ({"strategy__units": 0}, "strategy.units", "0 is not a whole number ≥ 1"),
        ({"strategy__units": 2, "parallelism": {"pipeline": 2}}, "parallelism.pipeline", "must be 1 with"),
        ({"parallelism": {"pipeline": 16}, "cluster__workers": 16}, "parallelism.pipeline", "at most 5"),
    ],
    ids=str,
)
def test_what_is_refused(changes: dict[str, Any], key: str, says: str) -> None:
    given = {"workload": CNN, "strategy": {"name": "streaming-diloco"}, **changes}
    with pytest.raises(ScenarioError, match=says) as error:
        lockstep.simulate(scenario(**given))
    assert error.value.key == key


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
