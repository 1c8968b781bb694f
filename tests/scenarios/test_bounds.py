"""What no cluster could have, one value or several together, is refused: key, reason, what is valid."""

from typing import Any

import pytest

import lockstep
from lockstep import ScenarioError
from lockstep.job.plan import Plan
from lockstep.simulator.engine import Simulation
from lockstep.workloads.slowness import Cycle, Slowness
from tests.support.command_line import Lockstep
from tests.support.scenarios import scenario

HOUR = {"cluster__compute": {"time": {"distribution": "constant", "value": "1 h"}}}
NETWORK = {"bandwidth": "1 Gbit/s"}

# what the command is told; the key, and what the message says
REFUSED = [
    (["workload.batch_size=10_000_000"], "workload.batch_size", "must be at most 1437"),
    (["workload.batch_size=10_000_000_000"], "workload.batch_size", "must be at most 1000000000"),
    (["workload.problem=logistic"], "workload", "exactly one of"),
    (["cluster.compute={peak: 1e-300 FLOP/s}"], "cluster.compute.peak", "from 1 FLOP/s to 1e12 TFLOP/s"),
    (["cluster.compute={peak: 1 TFLOP/s, efficiency: 1e-300}"], "efficiency", "must be at least 0.000001"),
    (["cluster.compute={peak: 1 FLOP/s, efficiency: 1e-6}"], "cluster.compute.peak", "; must be from 1e-6"),
    (["cluster.compute.time.mean=5e-324 s"], "cluster.compute.time.mean", "from 1e-6 ns to 1e9 s"),
    (["cluster.compute.time.cv=1e200"], "cluster.compute.time.cv", "must be at most 100"),
    (["workload={parameters: 4611686018427387904}"], "workload.parameters", "must be at most 1000000"),
    (["cluster.network.goodput=1e-300"], "cluster.network.goodput", "must be at least 0.01, not 1e-300"),
    (["cluster.network.bandwidth=1e-300 bit/s"], "cluster.network.bandwidth", "from 1 bit/s to 1e6 TB/s"),
    (["cluster.network.burst={size: 1e-9 B, line_rate: 1 Gbit/s}"], "burst.size", "from 1 B to 1e6 TB"),
    (
        ["workload={parameters: 1e15}", "stop={steps: 1}", "cluster.network.bandwidth=1 bit/s"],
        "cluster.network.bandwidth",
        "take 3.2e+16 s at 0.125 B/s of data; must be at most 1e9 s: give bandwidth × goodput of at least",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("sets", "key", "says"), REFUSED, ids=str)
def test_the_command_refuses_it(command: Lockstep, sets: list[str], key: str, says: str) -> None:
    ended = command("simulate", "quickstart", *(word for given in sets for word in ("--set", given)))
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert key in ended.err
    assert says in ended.err


TOGETHER: list[tuple[dict[str, Any], str, str]] = [
    (
        {"cluster__stragglers": [{"worker": 0, "slowdown": 1e4}, {"host": 0, "slowdown": 1e4}]},
        "cluster.stragglers[1]",
        "worker 0 takes 1 to 1e+08 times as long; their product must be a factor from 1e-06 to 1e+06",
    ),
    (
        {
            "cluster__network": {
                **NETWORK,
                "varying": 2 * [{"links": "*", "schedule": [{"at": "1 s", "factor": 1e-4}]}],
            }
        },
        "cluster.network.varying[1]",
        "worker 0's up-link has 1e-08 to 1 times its bandwidth; their product must be a factor",
    ),
    (
        {"cluster__stragglers": [{"worker": 0, "slowdown": 2, "period": "1 us", "busy": "500 ns"}], **HOUR},
        "cluster.stragglers[0].period",
        "changes 1.4e+10 times while a step of the run is made",
    ),
    (
        {
            "cluster__stragglers": [{"worker": 0, "slowdown": 2, "period": "1 us", "busy": "500 ns"}],
            "cluster__pass_overhead": "1 s",
            "workload__batch_size": 4,
            "parallelism": {"micro_batches": 4},
        },
        "cluster.stragglers[0].period",
        "changes 2.4e+07 times while a step of the run is made",  # twice in 1 us, of 3·4 passes
    ),
    (
        {"cluster__stragglers": [{"slowdown": 2, "spells": {"every": "1 us", "last": "1 us"}}], **HOUR},
        "cluster.stragglers[0].spells",
        "at most 1,000,000",
    ),
    (
        {
            "cluster__network": {
                **NETWORK,
                "varying": [{"links": "*", "schedule": [{"at": "0 s", "factor": 0.5}], "repeat": "1 us"}],
            },
            **HOUR,
        },
        "cluster.network.varying[0].repeat",
        "must leave 0.0036 s or more between two changes",
    ),
    (
        {
            "cluster__network": {
                **NETWORK,
                "background": [{"from": 0, "to": 1, "on": "1 us", "off": "1 us"}],
            },
            **HOUR,
        },
        "cluster.network.background[0].on",
        "what is faster is as good as its mean",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "key", "says"), TOGETHER, ids=lambda value: str(value)[:40])
def test_what_several_make_together(changes: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        lockstep.simulate(scenario(**changes))
    assert caught.value.key == key
    assert says in caught.value.problem


@pytest.mark.slow
def test_the_least_period_that_is_allowed_is_followed() -> None:
    """Half of the time it is twice as slow, so that 3/4 of the work is done in any period."""
    busy = [{"worker": 0, "slowdown": 2, "period": "4 us", "busy": "2 us"}]
    second = {"time": {"distribution": "constant", "value": "1 s"}}
    config = scenario(
        cluster__stragglers=busy, cluster__compute=second, cluster__workers=1, stop={"steps": 1}
    )
    assert lockstep.simulate(config).metrics["duration_s"] == pytest.approx(4 / 3, rel=1e-5)


def test_steps_that_no_clock_can_tell_apart_come_to_an_end() -> None:
    """At 10⁹ s the next instant is 10⁻⁷ s later, and a period of 10⁻¹² s would never be over."""
    slow = Slowness(steps=[Cycle([(0.0, 2.0), (5e-13, 1.0)], 1e-12)])
    assert 1e-6 <= slow.seconds(1e9, 1e-6) <= 3e-6


def test_a_run_whose_steps_are_done_does_not_wait_for_its_time() -> None:
    """Nothing but what varies would happen until then: 10⁹ changes."""
    varying = [{"links": "*", "schedule": [{"at": "0 s", "factor": 0.5}], "repeat": "1 s"}]
    network = {"bandwidth": "1 Gbit/s", "varying": varying}
    changes = {"cluster__network": network}
    long = scenario(**changes, stop={"steps": 5, "time": "1e9 s"})
    short = scenario(**changes, stop={"steps": 5})
    simulation = Simulation(Plan.of(long))
    simulation.run()
    assert simulation.result().records.equals(lockstep.simulate(short).records)


def test_bytes_are_counted_beyond_64_bits() -> None:
    config = scenario(workload={"parameters": 10**15}, stop={"steps": 400})
    result = lockstep.simulate(config)
    sent = sum(result.records["nbytes"].tolist())  # Python's numbers have no end
    assert result.metrics["bytes_sent"] == sent > 2**63


def test_memory_that_is_not_there_is_an_error_in_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    config = scenario(workload={"problem": "quadratic", "dimension": 10**9})
    monkeypatch.setattr("lockstep.workloads.memory.free_bytes", lambda: 1e6)
    refused(config, "workload", r"what is learned takes .* GB of memory, and .* GB is free; take a smaller")
    monkeypatch.setattr("lockstep.simulator.engine._LOOK_EVERY", 1000)
    refused(scenario(stop={"steps": 10_000}), "stop", "what has been recorded takes")
    many = scenario(cluster__workers=100, strategy="all-reduce", stop={"steps": 1})
    refused(many, "cluster.workers", "a ring of 100 workers takes")


def refused(config: lockstep.Scenario, key: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says) as caught:
        lockstep.simulate(config)
    assert caught.value.key == key
