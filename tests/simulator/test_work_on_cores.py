"""Updates and codecs compete for the cores of their host, or of the one machine: closed forms."""

from typing import Any

import pytest

import lockstep
from lockstep import Scenario
from tests.support.scenarios import scenario

WORKERS, UPDATE_S = 6, 2e-3
MEET = [
    {"name": "all-reduce", "algorithm": "ring"},
    {"name": "all-reduce", "algorithm": "halving-doubling"},
    {"name": "d-psgd"},
    {"name": "local-sgd", "averaging_period": 2},
]


def together(strategy: dict[str, Any], **changes: Any) -> Scenario:
    """Workers who do the same at the same time, over a network that takes none."""
    defaults = {
        "cluster__workers": WORKERS,
        "cluster__apply_overhead": f"{UPDATE_S} s",
        "stop": {"steps": 4},
    }
    if strategy.get("algorithm") == "halving-doubling":
        defaults["cluster__workers"] = 8
    return scenario(strategy=strategy, **(defaults | changes))


def duration_s(of: Scenario) -> float:
    return lockstep.simulate(of).metrics["duration_s"]


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("strategy", MEET)
def test_all_of_a_host_take_workers_over_cores_as_long(strategy: dict[str, Any], cores: int) -> None:
    alone = together(strategy)
    workers = alone.cluster.workers
    host = together(strategy, cluster__workers_per_host=workers, cluster__cores_per_host=cores)
    assert duration_s(host) == pytest.approx(duration_s(alone) * max(1, workers / cores), rel=1e-9)


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("busy", [1.0, 0.6, 0.1])
@pytest.mark.parametrize("strategy", MEET)
def test_on_one_machine_what_does_not_wait_takes_longer(
    strategy: dict[str, Any], busy: float, cores: int
) -> None:
    """Gradients are only waited for; of an update's overhead a part is, too."""
    alone, costs = together(strategy), {"cores": cores, "update": f"{busy * UPDATE_S} s"}
    machine = together(strategy, cluster__network={"processing": costs})
    computing = alone.stop.steps * 10e-3
    longer = max(1.0, alone.cluster.workers / cores * busy)
    updating = duration_s(alone) - computing
    assert updating > 4 * UPDATE_S - 1e-9
    assert duration_s(machine) - computing == pytest.approx(updating * longer, rel=1e-9)


def test_only_an_overhead_waits() -> None:
    """Of 6 ms of an update 4 are its bytes': it has a core for these and for a fifth of the others."""
    found = lockstep.simulate(
        together(
            {"name": "local-sgd", "averaging_period": 9},
            cluster__network={"processing": {"cores": 1, "update": "400 us"}},
            cluster__memory_bandwidth="6 MB/s",  # for six passes over 4 kB
        )
    ).records
    first = found[found["event"] == "work"].sort_values("start").iloc[:WORKERS]
    assert first["start"].tolist() == pytest.approx([10e-3] * WORKERS)
    assert (first["end"] - first["start"]).tolist() == pytest.approx([WORKERS * 4.4e-3] * WORKERS, rel=1e-9)


OTHERS = [
    {"name": "asynchronous"},
    {"name": "synchronous"},
    {"name": "ad-psgd"},  # these two work on two things at once
    {"name": "pipe-sgd"},
]


@pytest.mark.parametrize("strategy", [*MEET, *OTHERS])
def test_cores_for_everyone_change_nothing(strategy: dict[str, Any]) -> None:
    if strategy["name"] == "all-reduce":
        strategy = {**strategy, "buckets": 2}
    plain = together(strategy, cluster__network={"latency": "1 ms"})
    shared = together(
        strategy, cluster__network={"latency": "1 ms", "processing": {"cores": 64, "update": "1 s"}}
    )
    columns = ["event", "node", "kind", "start", "end"]
    first, second = (
        lockstep.simulate(each).records[columns].sort_values(columns[:4], ignore_index=True)
        for each in (plain, shared)
    )
    assert len(first) == len(second)
    for column in ("start", "end"):
        assert second[column].to_numpy() == pytest.approx(first[column].to_numpy(), rel=1e-9)


def test_codecs_share_the_cores() -> None:
    """On a core of their own all encode 1 MB at 100 MB/s at once; on one core each takes all as long."""
    codecs = {"int8": {"encode": "100 MB/s"}}
    compressed = {"name": "asynchronous", "codec": "int8"}
    seconds = []
    for costs in (None, {"cores": 1, "update": "1 ns"}):
        found = lockstep.simulate(
            scenario(
                cluster__workers=WORKERS, cluster__codecs=codecs, strategy=compressed, stop={"steps": 1},
                cluster__network={"processing": costs}, workload={"parameters": 250_000},
            )
        ).records  # fmt: skip
        work = found[(found["event"] == "work") & (found["kind"] == "encode")]
        seconds.append((work["end"] - work["start"]).max())
    assert seconds == pytest.approx([10e-3, WORKERS * 10e-3], rel=1e-9)


def test_a_server_beside_a_worker_slows_its_gradients() -> None:
    """On one core: a push comes to the server of host 0 after 10 ms, where a worker computes for 20 ms."""
    found = lockstep.simulate(
        scenario(
            cluster__workers=2, cluster__servers={"count": 1, "colocated": True}, cluster__cores_per_host=1,
            cluster__stragglers=[{"worker": 0, "slowdown": 2}], cluster__apply_overhead="4 ms",
            strategy={"name": "asynchronous"}, stop={"steps": 1},
        )
    ).records  # fmt: skip
    gradients = found[found["event"] == "gradient"].sort_values("node")
    assert gradients["end"].tolist() == pytest.approx([0.024, 0.010], rel=1e-9)
    updates = found[found["event"] == "update"].sort_values("end")
    assert updates["end"].tolist() == pytest.approx([0.018, 0.028], rel=1e-9)


def test_the_dead_leave_the_cores_to_others() -> None:
    """Two compute for 10 ms on one core, of whom one crashes after 6: the other has done 3 by then."""
    found = lockstep.simulate(
        scenario(
            cluster__workers=2, cluster__workers_per_host=2, cluster__cores_per_host=1, stop={"steps": 1},
            strategy={"name": "asynchronous"}, recovery={"on_failure": "continue"},
            cluster__faults=[{"worker": 1, "crash": True, "at": "6 ms"}],
        )
    ).records  # fmt: skip
    gradients = found[(found["event"] == "gradient") & (found["node"] == 0)]
    assert gradients["end"].tolist() == pytest.approx([0.013], rel=1e-9)


def test_without_what_an_update_takes_messages_have_it_in_them() -> None:
    """A profile of before: what it found for messages has updates in it."""
    for strategy in MEET:
        alone, machine = (
            together(strategy, cluster__network={"processing": costs}) for costs in (None, {"cores": 1})
        )
        assert duration_s(machine) == pytest.approx(duration_s(alone), rel=1e-9)


def test_who_dies_in_an_update_leaves_the_cores() -> None:
    """On one core two add for 4 ms each at 10 ms; one crashes at 12, when both have 3 ms left."""
    found = lockstep.simulate(
        scenario(
            cluster__workers=2, cluster__apply_overhead="4 ms", stop={"steps": 1},
            cluster__network={"processing": {"cores": 1, "update": "1 s"}},
            strategy={"name": "local-sgd", "averaging_period": 9}, recovery={"on_failure": "continue"},
            cluster__faults=[{"worker": 1, "crash": True, "at": "12 ms"}], cluster__detect="1 ms",
        )
    ).records  # fmt: skip
    work = found[found["event"] == "work"].sort_values(["node", "start"])
    first = work.groupby("node").first()
    assert first["start"].tolist() == pytest.approx([10e-3, 10e-3])
    assert first["end"].tolist() == pytest.approx([15e-3, 12e-3], rel=1e-9)


@pytest.mark.parametrize("stop", [{"steps": 3}, {"time": "13 ms"}, {"time": "27 ms"}])
def test_a_server_is_as_busy_as_with_cores_of_its_own(stop: dict[str, Any]) -> None:
    """Two workers push at once, and the end may come in the midst of an update."""
    alone, shared = (
        lockstep.simulate(
            scenario(
                cluster__workers=2, cluster__apply_overhead="2 ms", stop=stop,
                strategy={"name": "asynchronous"}, cluster__network={"processing": costs},
            )
        ).metrics["utilisation"]
        for costs in (None, {"cores": 1, "update": "1 s"})
    )  # fmt: skip
    assert 0 < alone["server 0"] < 1
    assert shared == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_a_fast_server_is_as_much_faster_on_shared_cores(speed: float) -> None:
    """All of its overhead takes a core: two servers of a machine with one take twice as long for updates."""
    ends = []
    for costs in (None, {"cores": 1, "update": "2 ms"}):
        found = lockstep.simulate(
            scenario(
                cluster__workers=1, cluster__apply_overhead="2 ms", stop={"steps": 1},
                cluster__servers={"count": 2, "speed": speed}, cluster__network={"processing": costs},
            )
        ).records  # fmt: skip
        ends.append(found.loc[found["event"] == "update", "end"].max() - 10e-3)
    assert ends == pytest.approx([2e-3 / speed, 2 * 2e-3 / speed], rel=1e-9)


def test_a_piece_that_was_given_ends_while_its_process_hangs() -> None:
    found = lockstep.simulate(
        scenario(
            cluster__workers=2, cluster__apply_overhead="4 ms", stop={"steps": 2},
            cluster__network={"processing": {"cores": 2, "update": "1 s"}},
            strategy={"name": "local-sgd", "averaging_period": 9},
            cluster__faults=[{"worker": 1, "hang_for": "50 ms", "at": "12 ms"}], cluster__detect="1 s",
        )
    ).records  # fmt: skip
    work = found[(found["event"] == "work") & (found["node"] == 1)].sort_values("start")
    assert work[["start", "end"]].iloc[0].tolist() == pytest.approx([10e-3, 14e-3], rel=1e-9)
