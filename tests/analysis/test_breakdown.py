"""Where workers' time went: records by hand with known fractions."""

import json
from math import nan
from typing import Any

import pytest

import lockstep
from lockstep.analysis.breakdown import PARTS, shares
from lockstep.analysis.records import Recorder
from lockstep.analysis.result import Result
from tests.support.results import result_of
from tests.support.scenarios import scenario


def parts(result: Result) -> dict[str, float]:
    found = result.metrics["breakdown"]
    assert list(found) == ["compute", "update", "network", "wait"]
    return {name: pytest.approx(part, abs=1e-12) for name, part in found.items() if name != "update" or part}


def rows(result: Result) -> list[list[float]]:
    """compute, send, network and wait of each worker, who has no work of its own."""
    assert tuple(result.breakdown.columns) == PARTS
    assert not result.breakdown["update"].any()
    found = result.breakdown.drop(columns="update").to_numpy().tolist()
    return [pytest.approx(row, abs=1e-12) for row in found]


def five(result: Result) -> list[list[float]]:
    """All parts of each worker, in their order."""
    return [pytest.approx(row, abs=1e-12) for row in result.breakdown.to_numpy().tolist()]


# --- all workers together -----------------------------------------------------------------------------------


def test_breakdown_of_one_push_pull() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 4.0, 0)
        r.message(0, 1, 4.0, nan, 5.0, "push", 8)  # network
        r.update(1, 0, 7.0, 0, 0, 1)  # from 5 to 7 the server is at work: network, too
        r.message(1, 0, 7.0, nan, 8.0, "parameters", 8)
        r.gradient(0, 8.0, 9.0, 1)
        r.update(1, 0, 10.0, 1, 0, 1)

    found = parts(result_of(write, workers=1))
    assert found == {"compute": 0.5, "network": 0.5, "wait": 0}


def test_messages_that_overlap_are_not_counted_twice() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 2.0, 0)
        r.gradient(1, 0.0, 10.0, 0)
        r.message(0, 2, 1.0, nan, 5.0, "push", 8)  # a second of it under the gradient
        r.message(0, 3, 2.0, nan, 4.0, "push", 8)  # within the first
        r.message(3, 0, 4.5, nan, 6.0, "parameters", 8)  # beyond it
        r.update(2, 0, 10.0, 0, 0, 1)
        r.update(3, 0, 10.0, 0, 0, 1)

    found = parts(result_of(write, owners=[2, 3]))
    assert found == {"compute": (0.2 + 1) / 2, "network": 0.4 / 2, "wait": 0.4 / 2}


def test_messages_between_workers_are_both_workers_network_time() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.gradient(1, 0.0, 2.0, 0)
        r.message(0, 1, 1.0, nan, 4.0, "ring", 8)
        for worker in range(2):
            r.update(worker, worker, 4.0, 0, 0, 1)

    found = parts(result_of(write, owners=range(2)))
    assert found == {"compute": 3 / 8, "network": 5 / 8, "wait": 0}


def test_messages_between_servers_are_network_only_while_nobody_computes() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.gradient(1, 0.0, 2.0, 0)  # until 2 worker 0 waits for it
        r.message(2, 3, 1.0, nan, 4.0, "forward", 8)
        r.update(3, 0, 4.0, 0, 0, 1)

    assert rows(result_of(write, owners=[3])) == [[0.25, 0, 0.5, 0.25], [0.5, 0, 0.5, 0]]


def test_a_collective_is_network_once_everybody_has_entered_it() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.gradient(1, 0.0, 3.0, 0)
        r.collective(0, 1.0, 4.0, 0, 8)  # waits for the other until 3
        r.collective(1, 3.0, 4.0, 0, 8)
        for worker in range(2):
            r.update(worker, worker, 4.0, 0, 0, 1)

    found = parts(result_of(write, owners=range(2)))
    assert found == {"compute": 4 / 8, "network": 2 / 8, "wait": 2 / 8}


def test_each_collective_has_its_own_beginning() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.gradient(1, 0.0, 4.0, 0)
        for number in range(2):
            r.collective(0, 1.0 + 2 * number, 2.0 + 2 * number, number, 8)
        r.update(0, 0, 4.0, 0, 0, 1)

    assert rows(result_of(write, owners=[0])) == [[0.25, 0.5, 0, 0.25], [1, 0, 0, 0]]


def test_what_lies_outside_the_run_does_not_count() -> None:
    def write(r: Recorder) -> None:
        r.message(2, 0, 0.0, nan, 10.0, "parameters", 8)
        r.gradient(0, 10.0, 11.0, 0)
        r.gradient(1, 10.0, 20.0, 0)
        r.update(2, 0, 12.0, 0, 0, 1)
        r.gradient(0, 11.5, 99.0, 1)

    assert rows(result_of(write)) == [[0.75, 0, 0, 0.25], [1, 0, 0, 0]]


def test_nobody_waits_for_gradients_while_nobody_computes() -> None:
    def write(r: Recorder) -> None:
        for worker in range(3):
            r.gradient(worker, 0.0, 1.0, 0)
        r.message(0, 1, 1.0, 3.0, 4.0, "ring", 8)  # worker 2 waits for what comes of it
        for worker in range(3):
            r.update(worker, worker, 4.0, 0, 0, 1)

    result = result_of(write, workers=3, owners=range(3))
    assert rows(result) == [[0.25, 0.5, 0.25, 0], [0.25, 0, 0.75, 0], [0.25, 0, 0.75, 0]]


@pytest.mark.parametrize(
    "stop", [("fault", 1, 3.0, 4.0, 7.0, "crash"), ("checkpoint", 2, 3.0, 7.0, "write", 3, 100)]
)
def test_who_has_failed_and_checkpoints_are_waited_for(stop: tuple[Any, ...]) -> None:
    """It is not the network's fault that nobody computes meanwhile."""

    def write(r: Recorder) -> None:
        event, *values = stop
        (kind,) = [value for value in values if isinstance(value, str)]
        r.gradient(0, 0.0, 3.0, 0)
        r.note(event, *(value for value in values if value != kind), kind=kind)
        r.message(2, 0, 7.0, nan, 8.0, "parameters", 8)
        r.gradient(0, 8.0, 10.0, 1)
        r.update(2, 0, 10.0, 0, 0, 1)

    result = result_of(write, workers=2)
    assert rows(result)[0] == [0.5, 0, 0.1, 0.4]


def test_an_idle_worker_waits_while_another_computes() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.update(2, 0, 1.0, 0, 0, 1)

    assert parts(result_of(write)) == {"compute": 0.5, "network": 0, "wait": 0.5}


# --- each worker --------------------------------------------------------------------------------------------


def test_a_message_is_sending_until_its_last_byte_has_left() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 4.0, 0)
        r.gradient(1, 0.0, 10.0, 0)
        r.message(0, 2, 3.0, 6.0, 7.0, "push", 8)  # a second of it under the gradient
        r.update(2, 0, 7.0, 0, 0, 1)
        r.message(2, 0, 8.0, 9.0, 9.5, "parameters", 8)
        r.update(2, 0, 10.0, 1, 0, 1)

    result = result_of(write)
    assert rows(result) == [[0.4, 0.2, 0.25, 0.15], [1, 0, 0, 0]]
    assert parts(result) == {"compute": 1.4 / 2, "network": 0.45 / 2, "wait": 0.15 / 2}


def test_a_worker_that_sends_does_not_wait_for_what_comes_in() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 2.0, 0)
        r.gradient(1, 0.0, 2.0, 0)
        r.message(0, 1, 2.0, 6.0, 6.0, "ring", 8)
        r.message(1, 0, 2.0, 4.0, 8.0, "ring", 8)
        for worker in range(2):
            r.update(worker, worker, 8.0, 0, 0, 1)

    assert rows(result_of(write, owners=range(2))) == [[0.25, 0.5, 0.25, 0], [0.25, 0.25, 0.5, 0]]


def test_what_is_not_known_to_be_leaving_is_the_network() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.message(0, 1, 1.0, nan, 2.0, "push", 8)
        r.update(1, 0, 2.0, 0, 0, 1)

    assert rows(result_of(write, workers=1)) == [[0.5, 0, 0.5, 0]]


def test_a_collective_that_all_have_entered_is_sending() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.gradient(1, 0.0, 3.0, 0)
        r.collective(0, 1.0, 4.0, 0, 8)
        r.collective(1, 3.0, 4.0, 0, 8)
        for worker in range(2):
            r.update(worker, worker, 4.0, 0, 0, 1)

    found = rows(result_of(write, owners=range(2)))
    assert found == [[0.25, 0.25, 0, 0.5], [0.75, 0.25, 0, 0]]


def test_the_figures_have_a_list_over_the_workers() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.message(0, 2, 1.0, 2.0, 3.0, "push", 8)
        r.update(2, 0, 4.0, 0, 0, 1)

    m = json.loads(result_of(write).to_json())
    assert m["breakdown_by_worker"] == {
        "compute": [0.25, 0.0],
        "update": [0.0, 0.0],
        "send": [0.25, 0.0],
        "network": [0.5, 0.75],
        "wait": [0.0, 0.25],
    }


@pytest.mark.parametrize("strategy", ["asynchronous", "synchronous", "all-reduce"])
def test_a_push_pull_in_the_simulator(strategy: str) -> None:
    # Two workers, 1 s a gradient; 4 kB at 4 kB/s, latency 1/4 s: pushes and pulls of both share the server's
    # card (2 s each), a ring sends 2 kB twice.
    run = lockstep.simulate(
        scenario(
            cluster__workers=2,
            cluster__network={"bandwidth": "4 kB/s", "latency": "250 ms"},
            cluster__compute={"time": {"distribution": "constant", "value": "1 s"}},
            strategy=strategy,
            stop={"updates": 20},
        )
    )
    compute, update, send, network, wait = run.breakdown.mean()
    assert update == 0
    duration = run.metrics["duration_s"]
    assert (run.breakdown.sum(axis=1) - 1).abs().max() < 1e-12
    if strategy == "synchronous":  # the run ends with the push of round 20
        assert duration == pytest.approx(20 * (1 + 2 + 0.25) + 19 * 2.25)
        assert [compute, send, network, wait] == pytest.approx(
            [20 / duration, 20 * 2 / duration, (20 * 0.25 + 19 * 2.25) / duration, 0], abs=1e-12
        )
    if strategy == "all-reduce":
        assert duration == pytest.approx(20 * (1 + 2 * (0.5 + 0.25)))
        assert [compute, send, network, wait] == pytest.approx([1 / 2.5, 1 / 2.5, 0.5 / 2.5, 0])


@pytest.mark.parametrize(("workers_per_host", "steps"), [(1, 5), (4, 1)])
def test_a_native_ring_has_the_breakdown_of_a_ring_of_messages(workers_per_host: int, steps: int) -> None:
    # Not of hosts of 4 over many steps: some workers leave the ring, and compute, before others. Those then
    # wait while others compute, where in a native collective that all have entered nobody waits.
    native, ring = (
        lockstep.simulate(
            scenario(
                cluster__workers=8,
                cluster__workers_per_host=workers_per_host,
                cluster__network={"bandwidth": "1 MB/s", "intra_host": {"bandwidth": "100 MB/s"}},
                workload__parameters=100_000,
                strategy={"name": "all-reduce", "algorithm": algorithm},
                stop={"steps": steps},
            )
        ).metrics["breakdown"]
        for algorithm in ("native", "ring")
    )
    assert native == pytest.approx(ring, abs=1e-6)
    assert ring["wait"] == pytest.approx(0, abs=1e-12)


# --- own updates --------------------------------------------------------------------------------------------


def test_own_updates_come_after_computing_and_before_the_network() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 4.0, 0)
        r.work(0, 3.0, 6.0, "apply")  # a second of it under the gradient
        r.message(0, 2, 5.0, 7.0, 8.0, "push", 8)  # a second of it under the work
        r.gradient(1, 0.0, 2.0, 0)
        r.update(2, 0, 10.0, 0, 0, 1)

    # Worker 1 waits for worker 0 to compute and to update, until 6.
    result = result_of(write)
    assert five(result) == [[0.4, 0.2, 0.1, 0.3, 0], [0.2, 0, 0, 0.4, 0.4]]
    assert parts(result) == {"compute": 0.3, "update": 0.1, "network": 0.4, "wait": 0.2}


def work_of(name: str, parameters: int = 100_000, workers: int = 4, **options: Any) -> dict[str, float]:
    """Seconds a mini-batch of each part of a worker's time; memory at 100 MB/s, 10 ms a gradient."""
    run = lockstep.simulate(
        scenario(
            cluster__workers=workers,
            cluster__network={"bandwidth": "10 MB/s"},
            cluster__memory_bandwidth="100 MB/s",
            cluster__codecs={"1-bit": {"encode": "20 MB/s", "decode": "40 MB/s"}},
            workload__parameters=parameters,
            strategy={"name": name, **options},
            stop={"steps": 8},
        )
    )
    return {part: share * run.metrics["duration_s"] / 8 for part, share in run.breakdown.mean().items()}


def test_the_sums_and_the_step_of_a_ring_are_own_updates() -> None:
    # 400 kB in 4 chunks: three additions of 3·100 kB, a step of 5·400 kB less the read of the gradient: 3m.
    found = work_of("all-reduce")
    sums, own = 3 * 3 * 100_000 / 100e6, 3 * 400_000 / 100e6
    assert found["compute"] == pytest.approx(0.01)
    assert found["update"] == pytest.approx(sums + own)
    assert found["send"] == pytest.approx(6 * 100_000 / 10e6)
    assert found["network"] == found["wait"] == pytest.approx(0, abs=1e-12)
    native = work_of("all-reduce", algorithm="native")
    assert native == pytest.approx(found)


def test_local_steps_and_codecs_are_own_updates() -> None:
    # Two local steps touch 6m each (the model and the sum of steps); encoding 400 kB takes 20 ms.
    found = work_of("downpour", workers=1, communication_window=2, codec="1-bit", error_feedback=False)
    assert found["update"] == pytest.approx(6 * 400_000 / 100e6 + 0.02 / 2)


def test_the_servers_updates_are_not_the_workers() -> None:
    assert work_of("synchronous")["update"] == 0


@pytest.mark.real
def test_a_real_workers_own_steps_are_measured_too() -> None:
    config = scenario(
        cluster__workers=2, workload={"parameters": 2_000_000}, strategy="local-sgd", stop={"steps": 20}
    )
    run = lockstep.run(config)
    own = run.records[run.records["event"] == "work"]
    assert set(own["kind"]) == {"apply"}
    assert set(own["node"]) == {0, 1}
    assert (own["end"] >= own["start"]).all()
    assert run.metrics["breakdown"]["update"] > 0
    assert sum(run.metrics["breakdown"].values()) == pytest.approx(1)


# --- nothing happened ---------------------------------------------------------------------------------------


def test_no_duration_is_nothing() -> None:
    assert shares(Recorder().columns(), 2, 1.0, 1.0).tolist() == [[0.0, 0.0]] * 5


def test_a_run_without_records_waits_for_nobody() -> None:
    assert shares(Recorder().columns(), 1, 0.0, 1.0)[PARTS.index("network")].tolist() == [1.0]
