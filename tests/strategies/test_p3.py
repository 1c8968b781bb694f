"""P3: the numbers of `synchronous`, sooner; what overtakes what, and how long a step takes."""

from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep import Scenario, ScenarioError
from tests.support.scenarios import scenario

SLOW = {"bandwidth": "500 kB/s"}
CNN = {"dataset": "digits", "model": "cnn", "batch_size": 16}


def learned(strategy: dict[str, Any], servers: int, **more: Any) -> np.ndarray:
    run = scenario(
        cluster__workers=3, cluster__servers=servers, cluster__network={"bandwidth": "5 MB/s"},
        strategy={"learning_rate": 0.2, **strategy}, **{"workload": CNN, **more},
    )  # fmt: skip
    return lockstep.simulate(run).parameters


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("size", [700, 50_000])
def test_it_learns_what_synchronous_does(servers: int, units: int, size: int) -> None:
    """To what passes through pieces of the model round differently."""
    mlp = {"workload": {"dataset": "digits", "model": "mlp", "batch_size": 16}}
    found = learned({"name": "p3", "units": units, "slice_size": size, "momentum": 0.9}, servers, **mlp)
    assert found == pytest.approx(learned({"name": "synchronous", "momentum": 0.9}, servers, **mlp), abs=1e-6)


@pytest.mark.parametrize("split", [{"recompute": True}, {"micro_batches": 4}], ids=str)
def test_bit_for_bit_where_synchronous_computes_in_passes_too(split: dict[str, Any]) -> None:
    """Which draw the same dropouts."""
    found = [learned({"name": name, "units": 5}, 2, parallelism=split) for name in ("p3", "synchronous")]
    assert np.array_equal(*found)


def test_slices_change_no_bit() -> None:
    strategy = {"name": "p3", "units": 5, "optimizer": "adam", "learning_rate": 0.01}
    whole = learned({**strategy, "slice_size": 10**6}, 1)
    for size, servers in ((100, 1), (3000, 2)):
        assert np.array_equal(learned({**strategy, "slice_size": size}, servers), whole)


def layers(strategy: Any, steps: int) -> Scenario:
    """Eight layers of 2.5 ms forward, 5 ms backward and 8 ms on a link each way; one worker, one server."""
    return scenario(
        cluster__workers=1, cluster__network=SLOW, strategy=strategy, stop={"steps": steps},
        cluster__compute={"time": {"distribution": "constant", "value": "60 ms"}, "backward": 2 / 3},
        workload={"parameters": 8000, "layers": 8, "activation": "4 B"},
    )  # fmt: skip


def step_s(strategy: Any) -> float:
    """In the long run."""
    took = [lockstep.simulate(layers(strategy, steps)).metrics["duration_s"] for steps in (3, 6)]
    return float(took[1] - took[0]) / 3


def test_a_step_by_hand() -> None:
    """Let the last layer's gradient be there at 0: pushes leave at 8, 16, …, 64 ms, answers come 8 ms later.

    Layers 7 and 6 go first; then, of what is ready, 4, 3, 1, 0, and 2 and 5 after them. The forward pass has
    layers 0 and 1 at 56 ms, 2 at 64, 5 at 72: it ends at 79.5 ms, and the next gradient is there 5 ms later.
    Whoever sends in the order of the backward pass waits for layer 0 until 72 ms: 72 + 20 + 5.
    """
    assert step_s({"name": "p3", "units": 8}) == pytest.approx(0.0845)
    assert step_s({"name": "synchronous", "chunks": 8}) == pytest.approx(0.097)
    assert step_s("synchronous") == pytest.approx(2 * 0.064 + 0.060)


def test_the_nearest_to_the_input_overtakes() -> None:
    records = lockstep.simulate(layers({"name": "p3", "units": 8}, 2)).records
    of = records[records["event"] == "message"]
    pushes = of[of["kind"] == "push"].sort_values("start")
    assert len(pushes) == 16
    # each begins when the last has left: one at a time
    assert (pushes["start"].to_numpy()[1:8] >= pushes["left"].to_numpy()[:7] - 1e-12).all()
    passes = records[
        (records["event"] == "pass") & (records["kind"] == "forward") & (records["version"] == 1)
    ]
    first = passes.sort_values("start").iloc[0]
    answers = of[(of["kind"] == "parameters")].sort_values("end")["end"].to_numpy()[8:]
    # the sixth slice to be pushed is layer 0's: the forward pass begins while two are still under way
    assert first["start"] == pytest.approx(answers[5])
    assert answers[7] > first["start"] + 0.01


@pytest.mark.parametrize("bandwidth", ["20 Gbit/s", "40 Gbit/s"])
def test_it_is_faster_where_the_last_layers_are_large(bandwidth: str) -> None:
    """VGG-11, with nine tenths of its parameters behind its convolutions, against the best of some chunks."""

    def seconds(strategy: dict[str, Any]) -> float:
        first, second = (
            lockstep.simulate(
                scenario(
                    cluster__workers=4, cluster__servers=4,
                    cluster__network={"bandwidth": bandwidth, "latency": "50 us"},
                    cluster__compute={
                        "time": {"distribution": "constant", "value": "200 ms"}, "backward": 2 / 3,
                    },
                    workload={"dataset": "fake", "model": "vgg11", "batch_size": 32, "learning": False},
                    strategy=strategy, stop={"steps": steps},
                )
            ).metrics["duration_s"]
            for steps in (2, 4)
        )  # fmt: skip
        return float(second - first)

    chunks = min(seconds({"name": "synchronous", "chunks": each}) for each in (1, 4, 16, 64))
    assert seconds({"name": "p3", "units": 8, "slice_size": 1_000_000}) < chunks / 1.1


def test_what_is_refused() -> None:
    with pytest.raises(ScenarioError, match="computes the whole model in units"):
        lockstep.simulate(scenario(strategy="p3", parallelism={"pipeline": 2}))
    with pytest.raises(ScenarioError, match="keeps a barrier for each slice"):
        lockstep.simulate(scenario(strategy={"name": "p3", "consistency": "synchronous"}))
    with pytest.raises(ScenarioError, match="go with each other only"):
        lockstep.simulate(
            scenario(strategy={"name": "synchronous", "worker_loop": "p3", "consistency": "p3"})
        )


def test_a_server_without_parameters_updates_as_all_do() -> None:
    job = scenario(cluster__servers=3, workload={"parameters": 2}, strategy={"name": "p3"}, stop={"steps": 4})
    assert lockstep.simulate(job).metrics["updates"] == 4
