"""All kinds of failures, and drawn ones, where workers sum by collectives: runs end, and all adds up."""

from functools import partial
from itertools import product
from random import Random
from typing import Any

import pytest

from lockstep.strategies.collectives import ALGORITHMS
from tests.support.gone import simulated
from tests.support.nightly import drawn

run = partial(simulated, strategy="all-reduce")


KINDS: dict[str, dict[str, Any]] = {
    "crash": {"worker": 2, "crash": True, "back_after": "300 ms"},
    "back before that is noticed": {"worker": 0, "crash": True, "back_after": "50 ms"},
    "slow exit": {"worker": 2, "exits_after": "50 ms", "crash": True, "back_after": "300 ms"},
    "rack": {"rack": 0, "crash": True, "back_after": "300 ms"},
    "hang": {"worker": 1, "hang_for": "800 ms"},
    "link": {"link": {"host": 1}, "down_for": "800 ms"},
    "partition": {"partition": [[0, 1], [2, 3]], "down_for": "800 ms"},
    "never back": {"worker": 3, "crash": True},
}


@pytest.mark.parametrize(
    ("algorithm", "kind", "on"),
    drawn(
        [*product([name for name in ALGORITHMS if name != "native"], KINDS, ("continue", "wait"))], one_in=16
    ),
)
def test_all_algorithms_and_kinds_of_faults(algorithm: str, kind: str, on: str) -> None:
    """At four phases of a round; all adds up (`run`)."""
    if kind == "never back" and on == "wait":
        return
    network = {"bandwidth": "1 Mbit/s", "latency": "2 ms"}
    for phase in ("650 ms", "701 ms", "712 ms", "725 ms"):
        strategy = {"name": "all-reduce", "algorithm": algorithm, "buckets": 2}
        more: dict[str, Any] = {"stop": {"steps": 14}, "cluster": {"network": network}, "on": on}
        metrics = run(KINDS[kind] | {"at": phase}, strategy=strategy, **more).metrics
        assert metrics["failures"] == 1
        if kind != "never back":
            assert metrics["samples"] == 32 * 4 * 14


GIVEN_UP = 184
"""Where one could go on from a checkpoint of a line of parameters that others have given up."""


@pytest.mark.parametrize("seed", drawn(range(200), one_in=20, family=lambda seed: seed == GIVEN_UP))
def test_runs_end_and_add_up_whatever_fails(seed: int) -> None:
    anything(seed)


@pytest.mark.parametrize("seed", drawn(range(200), one_in=40))
def test_also_those_whose_rounds_change(seed: int) -> None:
    state = ["keep", "average", "reset"][seed % 3]
    anything(
        seed,
        {"name": "adacomm", "averaging_period": 5, "interval_s": 0.5, "learning_rate": 1e-9}
        if seed % 2
        else {"name": "post-local-sgd", "switch_step": 9, "averaging_period": 3, "optimizer_state": state},
    )


@pytest.mark.parametrize("seed", drawn(range(200), one_in=40))
def test_also_those_that_compute_beside_their_sums(seed: int) -> None:
    anything(seed, {"name": "pipe-sgd", "delay": seed % 4})


@pytest.mark.parametrize("seed", drawn(range(200), one_in=40))
def test_also_those_whose_fragments_have_turns(seed: int) -> None:
    turns = {"averaging_period": 2 + seed % 5, "fragments": 1 + seed % 4, "overlap": seed % 3}
    anything(seed, {"name": "streaming-diloco", **turns})


def anything(seed: int, strategy: dict[str, Any] | None = None) -> None:
    """A run with drawn faults, of a strategy or a drawn one; it adds up."""
    draw = Random(seed)
    workers, on = draw.choice([1, 2, 3, 5]), draw.choice(["continue", "wait"])
    faults: list[dict[str, Any]] = [
        {"mtbf": f"{draw.uniform(0.5, 4)} s", "back_after": f"{draw.uniform(0.01, 1)} s"}
    ]
    for kind in draw.choices(["crash", "hang", "link"], k=draw.randrange(4)):
        who, at, lasts = draw.randrange(workers), f"{draw.uniform(0.1, 4)} s", f"{draw.uniform(0.05, 1.5)} s"
        faults += {
            "crash": [{"worker": who, "at": at, "crash": True, "back_after": lasts}],
            "hang": [{"worker": who, "at": at, "hang_for": lasts}],
            "link": [{"link": {"host": who}, "at": at, "down_for": lasts}] * (workers > 1),
        }[kind]
    drawn_one: dict[str, Any] = draw.choice(
        [
            {"name": "all-reduce", "buckets": 3, "codec": draw.choice(["none", "fp16", "top-k"])},
            {"name": "local-sgd", "averaging_period": 3, "optimizer_state": draw.choice(["keep", "average"])},
            {"name": "diloco", "averaging_period": 4},
        ]
    )
    strategy = strategy or drawn_one
    strategy["optimizer"] = draw.choice(["sgd", "adam"])
    cluster = {
        "compute": {"time": {"distribution": "lognormal", "mean": "100 ms", "cv": 0.3}},
        "network": {"bandwidth": "1 Mbit/s", "latency": "2 ms"},
    }
    stop = draw.choice([{"time": "6 s"}, {"steps": 20, "time": "60 s"}, {"updates": 20, "time": "60 s"}])
    every = draw.choice([1, 3, None])
    run(
        *faults, workers=workers, on=on, strategy=strategy, cluster=cluster, stop=stop, every=every, seed=seed
    )
