"""Shared memory in virtual time: the race against a plain simulation, its closed forms, and what it costs."""

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario
from lockstep.job.plan import Plan
from lockstep.job.snapshots import Snapshots, merged
from lockstep.simulator.engine import Simulation
from lockstep.simulator.memory import Race
from tests.support.nightly import examples
from tests.support.scenarios import scenario

Operation = tuple[float, list[int], list[float] | None]  # start (s), components, what is added (None: a read)


@st.composite
def operations(draw: st.DrawFn) -> list[Operation]:
    """Reads and additions in the order in which they begin, at whole instants: many coincide."""
    starts = sorted(draw(st.lists(st.integers(0, 6), min_size=1, max_size=7)))
    found: list[Operation] = []
    for start in starts:
        where = sorted(draw(st.sets(st.integers(0, 5), min_size=1)))
        amounts = st.lists(st.floats(-9, 9, width=32), min_size=len(where), max_size=len(where))
        found.append((float(start), where, draw(st.none() | amounts)))
    return found


def plainly(
    initial: list[float], todo: list[Operation], seconds: list[float], until: float
) -> tuple[list[np.float32], list[list[np.float32]]]:
    """What is in memory then, and what each operation has loaded: one load or store after the other."""
    events = []
    for order, ((start, where, amounts), duration) in enumerate(zip(todo, seconds, strict=True)):
        times = [start + duration * (j / len(where)) for j in range(len(where) + 1)]
        for j, (load, store) in enumerate(pairwise(times)):
            events.append((load, order, j, "load"))
            if amounts is not None:
                events.append((store, order, j, "store"))
    memory = [np.float32(value) for value in initial]
    loaded: list[list[np.float32]] = [[] for _ in todo]
    for time, order, j, what in sorted(events):
        _, where, amounts = todo[order]
        if time > until:
            break
        if what == "load":
            loaded[order].append(memory[where[j]])
        else:
            assert amounts is not None
            memory[where[j]] = loaded[order][j] + np.float32(amounts[j])
    return memory, loaded


@pytest.mark.slow
@examples(4)
@given(operations(), st.sampled_from([0.0, 0.5, 1.0, 0.3]), st.lists(st.integers(0, 30), max_size=3))
def test_it_is_the_race_event_by_event(todo: list[Operation], each: float, looks: list[int]) -> None:
    """Whoever looks in between, and whenever."""
    initial = [float(value) for value in range(6)]
    seconds = [each * len(where) * (1 if amounts is None else 2) for _, where, amounts in todo]
    race, sweeps = Race(np.array(initial, np.float32)), []
    times = sorted({start for start, _, _ in todo} | {look / 2 for look in looks})
    for time in times:
        for (start, where, amounts), duration in zip(todo, seconds, strict=True):
            if start == time:
                update = None if amounts is None else np.array(amounts, np.float32)
                sweeps.append(race.begin(start, duration, np.array(where), update))
        if time * 2 in looks:
            begun = todo[: len(sweeps)]
            assert race.advance(time).tolist() == plainly(initial, begun, seconds[: len(begun)], time)[0]
    memory, loaded = plainly(initial, todo, seconds, np.inf)
    assert race.advance(np.inf).tolist() == memory
    assert [sweep.held.tolist() for sweep in sweeps] == loaded


# ------------------------------------------------------------------ by hand


def test_of_two_additions_at_once_one_is_lost() -> None:
    """Both load a component before the first one stores it."""
    race = Race(np.zeros(4, np.float32))
    everywhere = np.arange(4)
    race.begin(0.0, 4.0, everywhere, np.full(4, 1, np.float32))
    race.begin(0.5, 4.0, everywhere, np.full(4, 10, np.float32))
    assert race.advance(0.9).tolist() == [0, 0, 0, 0]
    assert race.advance(1.0).tolist() == [1, 0, 0, 0]
    assert race.advance(2.5).tolist() == [10, 10, 0, 0]
    assert race.advance(9.0).tolist() == [10, 10, 10, 10]


def test_an_addition_behind_another_loses_nothing() -> None:
    race = Race(np.zeros(4, np.float32))
    race.begin(0.0, 4.0, np.arange(4), np.full(4, 1, np.float32))
    race.begin(1.0, 4.0, np.arange(4), np.full(4, 10, np.float32))  # loads what has just been stored
    assert race.advance(9.0).tolist() == [11, 11, 11, 11]


def test_a_read_sees_half_of_an_addition_that_overtakes_it() -> None:
    race = Race(np.zeros(4, np.float32))
    read = race.begin(0.0, 4.0, np.arange(4))  # component j at j s
    race.begin(1.5, 1.0, np.array([0, 1, 2]), np.full(3, 1, np.float32))  # stored at 1.83, 2.17 and 2.5 s
    race.begin(1.6, 0.2, np.array([3]), np.full(1, 7, np.float32))
    race.advance(4.0)
    assert read.held.tolist() == [0, 0, 0, 7]
    assert race.values.tolist() == [1, 1, 1, 7]


# ------------------------------------------------------------------ what it costs


def hogwild(workers: int = 4, **changes: Any) -> Scenario:
    """A run of HOGWILD! on one host; `a__b=value` as in `conftest.scenario`."""
    return scenario(
        **{
            "cluster__workers": workers,
            "cluster__workers_per_host": workers,
            "strategy": "hogwild",
            "cluster__memory_bandwidth": "1 MB/s",
            **changes,
        }
    )


def test_a_step_reads_computes_and_adds() -> None:
    """4 kB read at 1 MB/s, a gradient of 10 ms, 8 kB loaded and stored."""
    run = lockstep.simulate(hogwild(workers=1, stop={"steps": 5}))
    assert run.metrics["duration_s"] == pytest.approx(5 * 0.022 - 0.004)  # from the first gradient on
    passes = run.records[run.records["event"] == "memory"]
    assert passes["kind"].tolist() == ["read", "add"] * 5
    seconds = (passes["end"] - passes["start"]).to_numpy()
    assert seconds == pytest.approx([0.004, 0.008] * 5)
    assert run.metrics["breakdown"]["network"] == pytest.approx(1 - 0.05 / 0.106)
    assert run.metrics["bottleneck"] == "memory: workers read and add to what they share 53% of their time"


def test_only_components_that_are_not_zero_take_time() -> None:
    """A sample of one feature: 4 bytes loaded, 4 stored; after the overhead of an update."""
    config = hogwild(
        workers=1, workload={"problem": "logistic", "density": 0.05, "batch_size": 1}, stop={"steps": 3},
        cluster__apply_overhead="1 ms",
    )  # fmt: skip
    passes = lockstep.simulate(config).records.query("event == 'memory'")
    seconds = (passes["end"] - passes["start"]).to_numpy()
    assert seconds == pytest.approx([80e-6, 1e-3 + 8e-6] * 3)


def test_the_network_means_nothing_to_it() -> None:
    slow = hogwild(cluster__network={"bandwidth": "1 kB/s", "latency": "1 s"})
    assert lockstep.simulate(slow).records.equals(lockstep.simulate(hogwild()).records)


def test_cores_are_shared_as_ever() -> None:
    crowded = lockstep.simulate(hogwild(cluster__cores_per_host=1, cluster__memory_bandwidth=None))
    assert crowded.metrics["throughput"] == pytest.approx(32 / 0.01)


def test_what_it_warns_of() -> None:
    assert lockstep.simulate(hogwild()).warnings == []
    apart = lockstep.simulate(hogwild(cluster__workers_per_host=2, cluster__memory_bandwidth=None))
    assert list(apart.warnings) == [
        "its workers share one memory, as if all were on one host, not on 2 (cluster.workers_per_host)",
        "cluster.memory_bandwidth is not given: additions take no time, none is lost",
    ]


# ------------------------------------------------------------------ what it learns

SPARSE = {"problem": "logistic", "dimension": 200, "density": 0.02, "batch_size": 4}
DENSE = {**SPARSE, "density": 1}


def crowded(workload: dict[str, Any], **changes: Any) -> Scenario:
    return hogwild(
        8, workload=workload, strategy={"name": "hogwild", "learning_rate": 1.0}, stop={"steps": 40},
        **{
            "cluster__compute": {"time": {"distribution": "exponential", "mean": "0.2 ms"}},
            "cluster__memory_bandwidth": "20 kB/s",
            **changes,
        },
    )  # fmt: skip


def lost(config: Scenario) -> float:
    """The fraction of the components added that are not in the final parameters: every gradient is −1s."""
    simulation = Simulation(Plan.of(config))
    learner, touched = simulation.learner, []
    real = learner.gradient

    def gradient(parameters: Any, worker: int, step: int) -> Any:
        found = real(parameters, worker, step) != 0
        touched.append(int(found.sum()))
        return -found.float()

    learner.gradient = gradient
    simulation.run()
    return 1 - float(simulation.result().parameters.sum()) / sum(touched)


@pytest.mark.slow
def test_sparse_gradients_lose_fewer_updates() -> None:
    """A step takes 200 components of 0.4 ms, or some 16 of them, and most of the time nothing else."""
    dense, sparse = (lost(crowded(workload)) for workload in (DENSE, SPARSE))
    assert dense > 0.2
    assert sparse < dense / 10


def test_nothing_is_lost_where_memory_takes_no_time() -> None:
    assert lost(crowded(DENSE, cluster__memory_bandwidth=None)) == 0


# ------------------------------------------------------------------ what the theory says


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
def test_staleness_is_conserved(workers: int) -> None:
    """Between a worker's additions each other worker's are counted once: n − 1 on average in the long run.

    Missing are those after a worker's last addition, while it computes: of each other about one.
    """
    time = {"distribution": "gamma", "mean": "10 ms", "cv": 1}
    run = lockstep.simulate(hogwild(workers, cluster__compute={"time": time}, stop={"updates": 2000}))
    missing = workers - 1 - run.metrics["staleness"]["mean"]
    assert 0 <= missing < 3 * workers * (workers - 1) / 2000 + 1e-9


@pytest.mark.slow
def test_throughput_scales_with_workers_where_computing_dominates() -> None:
    """Nobody waits, so what is lost of n times one worker's is the time in memory: 7 us of a step of 2 ms.

    With `stop.time` everyone works until the end.
    """
    efficiency = [
        lockstep.simulate(
            hogwild(
                workers, workload=SPARSE, cluster__memory_bandwidth="200 MB/s", stop={"time": "400 ms"},
                cluster__compute={"time": {"distribution": "gamma", "mean": "2 ms", "cv": 0.3}},
            )
        ).metrics["efficiency"]
        for workers in (1, 4, 16)
    ]  # fmt: skip
    assert efficiency == pytest.approx([1, 1, 1], abs=0.03)


# ------------------------------------------------------------------ what is kept of it


@pytest.mark.slow
@given(st.integers(1, 400), st.integers(1, 4), st.randoms(use_true_random=False))
def test_processes_that_see_some_versions_each_keep_what_one_would(
    versions: int, processes: int, random: Random
) -> None:
    """With a limit of 8: 400 versions are 50 times as many."""
    alone, parts = Snapshots(64 << 20), [Snapshots(64 << 20) for _ in range(processes)]
    for version in range(1, versions + 1):
        part = random.choice(parts)
        assert part.wants(version) == alone.offer(version, version / 10, version)
        part.offer(version, version / 10, version)
    together = merged(parts)
    assert (together.taken, together.last) == (alone.taken, alone.last)
    assert len(alone.taken) <= alone.limit
    assert alone.last == (versions, versions / 10, versions)
    assert versions > 8 or list(alone.taken) == list(range(1, versions + 1))


def test_what_a_run_leaves_is_its_last_version() -> None:
    """Not what that was when it was new: others were adding."""
    config = hogwild(
        4, workload=DENSE, cluster__memory_bandwidth="20 kB/s", stop={"time": "1 s"},
        cluster__compute={"time": {"distribution": "exponential", "mean": "50 ms"}},
    )  # fmt: skip
    simulation = Simulation(Plan.of(config))
    simulation.run()
    assert simulation.snapshots[0].last is not None
    version, _, new = simulation.snapshots[0].last
    left = simulation.race.advance(np.nextafter(1.0, 0)).copy()
    run = simulation.result()
    assert np.array_equal(run.parameters, left)
    assert not np.array_equal(run.parameters, new)
    assert run.curve["version"].tolist() == list(range(1, version + 1))


def test_what_would_happen_when_the_time_is_up_no_longer_does() -> None:
    """A step is 1/16 s of reading, as much of computing, and 1/8 s of adding: the second adds at 3/8 s.

    Half of its components have been stored at 7/16 s, the last of them at that very instant.
    """
    config = hogwild(
        1, workload=DENSE, cluster__memory_bandwidth="12.8 kB/s", stop={"time": "437.5 ms"},
        cluster__compute={"time": {"distribution": "constant", "value": "62.5 ms"}},
    )  # fmt: skip
    simulation = Simulation(Plan.of(config))
    simulation.run()
    version, time, new = simulation.snapshots[0].last
    assert (version, time) == (1, 0.25)
    assert int((simulation.result().parameters != new.numpy()).sum()) == 99
