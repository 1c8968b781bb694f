"""The estimate of a command's work: read off its beginning, and told in seconds."""

import time

import pytest

import lockstep
from lockstep import work
from lockstep.simulator.pilot import pilot
from tests.support.pace import slowness
from tests.support.scenarios import scenario


@pytest.mark.alone
@pytest.mark.parametrize(
    ("strategy", "workers", "stop"),
    [
        ("asynchronous", 50, {"steps": 400}),
        ("synchronous", 50, {"updates": 400}),
        ("all-reduce", 16, {"time": "8 s"}),
        ("gossip", 50, {"steps": 400}),
        ("downpour", 50, {"updates": 3000}),
    ],
)
def test_the_beginning_tells_the_rest(strategy: str, workers: int, stop: dict[str, object]) -> None:
    """How many steps a run has and how long it is, whatever the machine: within a third."""
    network = {"bandwidth": "1 Gbit/s", "latency": "50 us"}
    config = scenario(
        cluster__workers=workers, cluster__network=network, strategy=strategy, stop=stop,
        cluster__compute={"time": {"distribution": "exponential", "mean": "10 ms"}},
    )  # fmt: skip
    seen, result = pilot(config, 0.05 * slowness()), lockstep.simulate(config)
    gradients = (result.records["event"] == "gradient").sum()
    assert seen.done <= 1
    assert seen.steps / seen.done == pytest.approx(gradients, rel=1 / 3)
    assert seen.virtual_s / seen.done == pytest.approx(result.metrics["duration_s"], rel=1 / 3)


@pytest.mark.alone
def test_seconds_are_told_within_a_factor_of_four() -> None:
    """Such as 0.5 s of a pilot that others have disturbed; minutes and days are a thousand apart."""
    config = scenario(cluster__workers=40, stop={"steps": 1000})
    estimate, begin = work.simulating(config), time.monotonic()
    _ = lockstep.simulate(config).metrics
    assert 1 / 4 < estimate.seconds / (time.monotonic() - begin) < 4
