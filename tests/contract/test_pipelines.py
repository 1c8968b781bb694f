"""Split models in real processes: the simulator's counts, and its bits where nobody's luck decides."""

import time
from pathlib import Path
from statistics import median

import numpy as np
import pytest

import lockstep
from lockstep import Result, Scenario
from lockstep.analysis.records import of
from tests.support.nightly import drawn
from tests.support.pipelines import pipeline

pytestmark = pytest.mark.real

SAME_BITS: dict[str, Scenario] = {
    "gpipe": pipeline(2, pipeline=2, micro_batches=4, order="gpipe"),
    "1f1b, recomputing": pipeline(1, pipeline=3, micro_batches=4, recompute=True),
    "interleaved": pipeline(1, pipeline=2, micro_batches=4, order="interleaved", chunks=2),
    "zero-bubble": pipeline(2, pipeline=2, micro_batches=4, order="zero-bubble"),
    "native": pipeline(2, {"name": "all-reduce", "algorithm": "native"}, pipeline=2),
    "accumulation": pipeline(2, micro_batches=4),
    "pipedream": pipeline(2, "pipedream", pipeline=2),
    "pipedream-2bw": pipeline(1, "pipedream-2bw", pipeline=3, micro_batches=4),
    "synchronous": pipeline(2, "synchronous", pipeline=2),
    "local-sgd": pipeline(2, {"name": "local-sgd", "averaging_period": 2}, pipeline=2),
    "d-psgd": pipeline(2, "d-psgd", pipeline=2),
    "fedavg": pipeline(2, {"name": "fedavg", "participation": 0.5}, pipeline=2),
    "accumulation in bf16": pipeline(2, micro_batches=4, precision="bf16"),
    "accumulation in fp16": pipeline(2, micro_batches=4, recompute=True, precision="fp16"),
    "stages in bf16": pipeline(1, pipeline=3, micro_batches=4, recompute=True, precision="bf16"),
}
OTHERS: dict[str, Scenario] = {
    name: pipeline(2, strategy, pipeline=2)
    for name, strategy in {
        "asynchronous": "asynchronous",
        "ssp": "ssp",
        "downpour": "downpour",
        "eamsgd": "eamsgd",
        "ad-psgd": "ad-psgd",
        "gossip": "gossip",
    }.items()
}


def passes(result: Result) -> dict[tuple[int, str, int], int]:
    """How many there are of each kind, by worker and piece."""
    done = result.records[result.records["event"] == "pass"]
    return done.groupby(["node", "kind", "peer"], observed=True).size().to_dict()


@pytest.mark.parametrize("name", drawn(SAME_BITS, 3))
def test_it_ends_with_the_simulators_bits(name: str) -> None:
    scenario = SAME_BITS[name]
    predicted, measured = lockstep.simulate(scenario), lockstep.run(scenario)
    assert measured.parameters is not None
    assert predicted.parameters is not None
    np.testing.assert_array_equal(measured.parameters, predicted.parameters)
    assert passes(measured) == passes(predicted)
    assert measured.metrics["bytes_sent"] == predicted.metrics["bytes_sent"]
    assert measured.metrics["samples"] == predicted.metrics["samples"]


@pytest.mark.parametrize("name", drawn(OTHERS, 3))
def test_it_makes_all_its_steps(name: str) -> None:
    predicted, measured = lockstep.simulate(OTHERS[name]), lockstep.run(OTHERS[name])
    assert passes(measured) == passes(predicted)
    assert measured.metrics["samples"] == predicted.metrics["samples"]


def test_a_run_is_repeated_with_the_same_bits(tmp_path: Path) -> None:
    real = lockstep.run(pipeline(2, "asynchronous", pipeline=2, order="zero-bubble"), out=tmp_path)
    again = lockstep.replay(tmp_path)
    assert real.parameters is not None
    assert again.parameters is not None
    np.testing.assert_array_equal(again.parameters, real.parameters)


def shortest_step(**cluster: object) -> float:
    """Seconds from the first pass to the last of one real worker, 100 micro-batches of 2 + 4 ms, of five."""
    compute = {"compute": {"time": {"distribution": "constant", "value": "600 ms"}}}
    document = {
        "name": "test",
        "cluster": {"workers": 1} | compute | cluster,
        "workload": {"parameters": 1000, "batch_size": 100},
        "parallelism": {"micro_batches": 100},
        "strategy": "all-reduce",
        "stop": {"steps": 5},
    }
    result = lockstep.run(Scenario.model_validate(document))
    steps = of(result.records, "pass", ["start", "end", "version"]).groupby("version")
    return float((steps["end"].max() - steps["start"].min()).min())


@pytest.mark.alone
def test_between_emulated_passes_no_time_is_lost() -> None:
    """Were each begun when Python comes to it, 200 would lose what it takes to wake up from 200 sleeps."""
    late = []
    for _ in range(100):
        begun = time.monotonic()
        time.sleep(0.003)
        late.append(time.monotonic() - begun - 0.003)
    assert shortest_step() - 0.6 < 200 * median(late) / 2


def test_what_a_pass_costs_besides_is_emulated_too() -> None:
    assert shortest_step(pass_overhead="1 ms") >= 0.799
