"""Where parts of layers on several devices pay: what docs/tensor.md derives, and what the simulator says."""

import pytest

import lockstep
from lockstep import Scenario

LAYERS, ACTIVATION, BANDWIDTH, LATENCY = 4, 1e6, 1e8, 1e-3


def seconds(layer: float, tensor: int, redundancy: int, micro_batches: int, one_host: bool) -> float:
    """Of a step; `layer`: of a layer's gradient on one device. Each device has BANDWIDTH, or shares it."""
    bandwidth = BANDWIDTH * (tensor if one_host else 1)
    link = {"bandwidth": f"{bandwidth} B/s", "latency": f"{LATENCY} s"}
    document = {
        "name": "test",
        "cluster": {
            "workers": tensor,
            "workers_per_host": tensor if one_host else 1,
            "network": {"intra_host": link} if one_host else link,
            "compute": {"time": {"distribution": "constant", "value": f"{LAYERS * layer} s"}},
        },
        "workload": {
            "parameters": 960,
            "layers": LAYERS,
            "batch_size": micro_batches,
            "activation": f"{ACTIVATION} B",
        },
        "parallelism": {"tensor": tensor, "redundancy": redundancy, "micro_batches": micro_batches},
        "strategy": "all-reduce",
        "stop": {"steps": 1},
    }
    return float(lockstep.simulate(Scenario.model_validate(document)).metrics["duration_s"])


@pytest.mark.parametrize("one_host", [False, True], ids=["cards", "one link"])
@pytest.mark.parametrize(
    ("tensor", "redundancy", "micro_batches"), [(4, 2, 1), (8, 2, 2), (8, 4, 1), (4, 4, 2)]
)
def test_it_pays_up_to_the_layer_that_the_page_says(
    tensor: int, redundancy: int, micro_batches: int, one_host: bool
) -> None:
    """A layer's gradient shorter than 8·(A/B + M·α·T²/r), T devices with bandwidth B each."""
    turn = 8 * (ACTIVATION / BANDWIDTH + micro_batches * LATENCY * tensor**2 / redundancy)

    def gain(layer: float) -> float:
        plain, redundant = (seconds(layer, tensor, r, micro_batches, one_host) for r in (1, redundancy))
        return plain - redundant

    assert gain(0.99 * turn) > 0 > gain(1.01 * turn)
    assert gain(turn) == pytest.approx(0, abs=1e-9)
