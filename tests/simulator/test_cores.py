"""Cores that processes share: closed forms, ends by hand, and a plain simulation of equal shares."""

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario
from lockstep.simulator.cores import Cores
from tests.support.nightly import examples
from tests.support.pace import longer
from tests.support.scenarios import scenario

Task = tuple[float, float]  # begun at (s), work (core-seconds)


def ends(tasks: list[Task], cores: int) -> list[float]:
    """When each task ends, each of a process of its own, all on one host."""
    environment = simpy.Environment()
    shared = Cores(environment, [0] * max(len(tasks), cores + 1), cores)
    found = [0.0] * len(tasks)

    def process(rank: int, begin: float, work: float):
        yield environment.timeout(begin)
        yield shared.compute(rank, [work])[-1]
        found[rank] = environment.now

    for rank, task in enumerate(tasks):
        environment.process(process(rank, *task))
    environment.run()
    return found


def plainly(tasks: list[Task], cores: int) -> list[float]:
    """The same, step by step: between a beginning and an end each of m runs at min(1, cores / m)."""
    left = {rank: work for rank, (_, work) in enumerate(tasks)}
    found, now = [0.0] * len(tasks), 0.0
    while left:
        active = [rank for rank in left if tasks[rank][0] <= now]
        coming = [tasks[rank][0] - now for rank in left if tasks[rank][0] > now]
        rate = min(1.0, cores / len(active)) if active else 1.0
        step = min([left[rank] / rate for rank in active] + coming)
        now = min([tasks[rank][0] for rank in left if tasks[rank][0] - now == step], default=now + step)
        for rank in active:
            left[rank] -= rate * step
            if left[rank] <= 1e-12:
                found[rank] = now
                del left[rank]
    return found


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
@pytest.mark.parametrize("processes", [1, 2, 3, 7, 16])
def test_m_processes_on_c_cores_take_m_over_c_as_long(processes: int, cores: int) -> None:
    expected = 0.3 * max(1.0, processes / cores)
    assert ends([(0.5, 0.3)] * processes, cores) == pytest.approx([0.5 + expected] * processes, rel=1e-12)


@pytest.mark.parametrize(
    ("tasks", "cores", "expected"),
    [
        # alone for 1 s, then two halves: the short one is done at 3, the long one has 1 s left
        ([(0, 3), (1, 1)], 1, [4, 3]),
        # two at full speed; from 1 on three at 2/3, until at 2.5 one is left with 1 s of work
        ([(0, 2), (0, 2), (1, 2)], 2, [2.5, 2.5, 3.5]),
        # one after another: nobody waits
        ([(0, 1), (1, 1), (2, 1)], 1, [1, 2, 3]),
        # three of different lengths on one core: 1/3 each, then 1/2, then 1
        ([(0, 1), (0, 2), (0, 3)], 1, [3, 5, 6]),
        ([(0, 0), (0, 1), (0, 1)], 1, [0, 2, 2]),  # no work takes no time, and no share
    ],
)
def test_ends_by_hand(tasks: list[Task], cores: int, expected: list[float]) -> None:
    assert ends(tasks, cores) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@examples(2)
@given(
    st.lists(
        # instants on a grid meet; those off it do not
        st.tuples(st.integers(0, 8).map(float) | st.floats(0, 8), st.integers(1, 5) | st.floats(0.1, 5)),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 6),
)
def test_equal_shares(tasks: list[Task], cores: int) -> None:
    assert ends(tasks, cores) == pytest.approx(plainly(tasks, cores), rel=1e-9, abs=1e-9)


# In a simulation


def crowded(cores: int | None, **changes: object) -> Scenario:
    """Four workers on each of two hosts, gradients of 10 ms, no network."""
    defaults = {
        "cluster__workers": 8,
        "cluster__workers_per_host": 4,
        "cluster__cores_per_host": cores,
        "strategy": {"name": "synchronous"},
    }
    return scenario(**(defaults | changes))


def gradients(of: Scenario):
    records = lockstep.simulate(of).records
    return records[records["event"] == "gradient"]


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_a_synchronous_round_takes_workers_over_cores_as_long(cores: int) -> None:
    rows = gradients(crowded(cores))
    assert len(rows) == 8 * 5
    assert (rows["end"] - rows["start"]).to_numpy() == pytest.approx(0.01 * 4 / cores, rel=1e-9)


@pytest.mark.parametrize("cores", [4, 5, 100])
def test_cores_for_all_change_nothing(cores: int) -> None:
    assert lockstep.simulate(crowded(cores)).records.equals(lockstep.simulate(crowded(None)).records)


def test_a_drawn_duration_is_the_work() -> None:
    """On one core beside a three times slower worker: 1 and 3 core-seconds, done at 2 and 4 s."""
    rows = gradients(
        scenario(
            cluster__workers=2, cluster__workers_per_host=2, cluster__cores_per_host=1, stop={"steps": 1},
            cluster__compute={"time": {"distribution": "constant", "value": "1 s"}},
            cluster__stragglers=[{"worker": 1, "slowdown": 3}], strategy={"name": "synchronous"},
        )
    )  # fmt: skip
    assert rows.sort_values("node")["end"].tolist() == pytest.approx([2, 4], rel=1e-12)


def test_a_server_on_a_worker_s_host_does_not_compute() -> None:
    colocated = {"count": 2, "colocated": True}
    rows = gradients(crowded(1, cluster__workers_per_host=1, cluster__servers=colocated))
    assert (rows["end"] - rows["start"]).to_numpy() == pytest.approx(0.01, rel=1e-12)


def test_a_host_s_cores_are_all_the_work_it_does() -> None:
    """Asynchronous workers never pause without a network, so two cores do two core-seconds a second."""
    random = {"time": {"distribution": "exponential", "mean": "10 ms"}}
    config = crowded(
        2,
        cluster__compute=random,
        strategy={"name": "asynchronous"},
        stop={"time": "20 s"},
        cluster__workers=4,
    )
    rows = gradients(config)
    assert (rows["end"] - rows["start"]).sum() == pytest.approx(4 * 20, rel=1e-9)
    # 2 × 20 s of work in draws of mean and deviation 10 ms: 4,000 ± √4,000, and four are unfinished
    assert len(rows) == pytest.approx(4000, abs=5 * 4000**0.5 + 4)


def test_what_a_run_s_end_interrupts_was_computing() -> None:
    """Rounds of 20 ms: at 50 ms the third is half done, and has been recorded as far as it got."""
    result = lockstep.simulate(crowded(2, stop={"time": "50 ms"}))
    rows = result.records[result.records["event"] == "gradient"]
    assert rows.groupby("version").size().tolist() == [8, 8, 8]
    third = rows[rows["version"] == 2]
    assert third["start"].to_numpy() == pytest.approx(0.04)
    assert third["end"].to_numpy() == pytest.approx(0.05)
    assert result.metrics["breakdown"]["compute"] == pytest.approx(1)


def test_the_end_interrupts_a_straggler_of_an_asynchronous_run() -> None:
    slow = [{"worker": 1, "slowdown": 100}]
    config = crowded(
        1, cluster__workers=2, cluster__workers_per_host=2, cluster__stragglers=slow,
        strategy={"name": "asynchronous"}, stop={"updates": 10},
    )  # fmt: skip
    result = lockstep.simulate(config)
    # each of the ten gradients has half of the core; all that time the straggler computes its first
    assert result.metrics["duration_s"] == pytest.approx(0.2)
    assert result.metrics["breakdown"]["compute"] == pytest.approx(1)
    straggler = result.records[(result.records["event"] == "gradient") & (result.records["node"] == 1)]
    assert straggler[["start", "end"]].to_numpy().tolist() == [[0, pytest.approx(0.2)]]


@pytest.mark.real
@pytest.mark.alone
def test_a_real_run_has_its_own_cores() -> None:
    constant = {"time": {"distribution": "constant", "value": longer(10)}}
    config = crowded(1, cluster__workers=2, cluster__workers_per_host=2, cluster__compute=constant)
    took = []
    for engine in (lockstep.run, lockstep.simulate):
        records = engine(config).records
        rows = records[records["event"] == "gradient"]
        took.append((rows["end"] - rows["start"]).median())
    real, simulated = took
    assert real < simulated  # sleeping takes no core: not twice the work, as where two share one
