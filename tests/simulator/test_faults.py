"""Failures in virtual time: what is lost, when the job goes on, and that nothing else changes."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.analysis.timeline import write
from lockstep.job import recovery
from lockstep.simulator.errors import SimulationError
from lockstep.studies.chaos.invariants import broken
from tests.support.failing import simulated as run
from tests.support.nightly import drawn

CRASH = {"worker": 2, "at": "3 s", "crash": True, "back_after": "2 s"}
SERVER = {"server": 0, "at": "3 s", "crash": True, "back_after": "2 s"}
HANG = {"worker": 1, "at": "3 s", "hang_for": "2 s"}
LINK = {"link": {"host": 1}, "at": "3 s", "down_for": "2 s"}


LEARNING = {"workload": {"dataset": "digits", "model": "mlp", "batch_size": 32}}


@pytest.mark.parametrize(
    "strategy", [{"name": name, "optimizer": "adam"} for name in ("synchronous", "all-reduce")]
)
def test_a_run_that_was_killed_ends_with_the_same_parameters(strategy: Any) -> None:
    whole = run(strategy=strategy, **LEARNING).parameters
    for fault in (CRASH, HANG | {"at": "7.25 s"}, {"mtbf": "20 s", "back_after": "1 s"}):
        assert np.array_equal(run(fault, strategy=strategy, **LEARNING).parameters, whole)


@pytest.mark.parametrize("back_after", ["1 s", "2 s"])
@pytest.mark.parametrize("strategy", ["synchronous", "all-reduce", "d-psgd", "fsdp"])
def test_a_run_that_ends_before_it_makes_an_update_again_has_the_checkpoints_parameters(
    strategy: str, back_after: str
) -> None:
    """Not those that it had come to before it went back; at 4 s it is back for 50 ms, or not at all."""
    crash = CRASH | {"at": "2950 ms", "back_after": back_after}
    ended = run(crash, strategy=strategy, stop={"time": "4 s"}, **LEARNING)
    assert np.array_equal(
        ended.parameters, run(strategy=strategy, stop={"updates": 20}, **LEARNING).parameters
    )
    assert ended.metrics["samples"] == 20 * 4 * 32
    never = run(crash, strategy=strategy, every=None, stop={"time": "4 s"}, **LEARNING)
    assert never.metrics["samples"] == 0


PLENTY: list[dict[str, Any]] = [
    {"worker": 2, "at": "10 s", "crash": True, "back_after": "30 s"},
    {"host": 1, "mtbf": "2 h", "back_after": {"distribution": "exponential", "mean": "5 min"}},
    {"server": 0, "at": "60 s", "crash": True, "back_after": "5 s"},
    {"link": {"host": 3, "direction": "both"}, "at": "20 s", "down_for": "4 s"},
    {"partition": [[0, 1], [2, 3]], "at": "30 s", "down_for": "5 s"},
    {"workers": {"add": 2}, "at": "40 s"},
    {"host": 2, "mtbf": "1 h", "notice": "30 s"},
    {"worker": 5, "at": "15 s", "hang_for": "8 s"},
]


@pytest.mark.parametrize(
    ("strategy", "on"),
    drawn(product(("synchronous", "asynchronous"), ("continue", "restart", "wait", "spare")), one_in=4),
)
def test_all_kinds_alone_and_together(strategy: str, on: str, tmp_path: Path) -> None:
    (tmp_path / "p3.csv").write_text("3, 1, down\n5, 2, down\n9, 1, up\n12, 2, up\n")
    items = [*PLENTY, {"trace": str(tmp_path / "p3.csv")}]
    compute = {"time": {"distribution": "constant", "value": "400 ms"}}  # 80 s of it are 200 rounds
    storage = {"write": "1 GB/s", "read": "2 GB/s"}
    cluster = {"workers": 6, "detect": "2 s", "storage": storage, "compute": compute}
    failures = []
    for faults in (*([item] for item in items), items):
        result = run(*faults, strategy=strategy, on=on, every=25, cluster=cluster, stop={"time": "80 s"})
        assert not [*broken(result)]
        failures.append(result.metrics["failures"])
    assert failures[:-1] == [1, 0, 1, 1, 1, 0, 0, 1, 2]  # what has an mtbf of hours does not fail in 80 s
    assert failures[-1] == 6 + (
        on == "spare"
    )  # at 10 s host 2 is away already, unless another is in its place


def test_times_of_a_restart() -> None:
    """Nothing but gradients takes time: 29 updates at 3 s, the 30th under way; back to the 20th at 5 s."""
    metrics = run(CRASH).metrics
    assert metrics["duration_s"] == pytest.approx(5 + 8.0, abs=1e-9)
    assert metrics["time_to_detect_s"] == pytest.approx(0.5)
    assert metrics["time_to_recover_s"] == pytest.approx(2.0)
    assert metrics["samples"] == 100 * 4 * 32
    # 9 rounds; of the 30th the three others' gradients
    assert metrics["lost_samples"] == (9 * 4 + 3) * 32
    assert metrics["goodput"] == pytest.approx(metrics["samples"] / metrics["duration_s"])
    assert metrics["availability"] == pytest.approx(1 - 2 / (5 * 13), rel=1e-6)


@pytest.mark.parametrize(("read", "write"), [*product(("1 kB/s", None), ("1 kB/s", None))])
def test_storage_takes_its_time(read: str | None, write: str | None) -> None:
    """4 kB at 1 kB/s: 4 s a checkpoint, nine of them until 100, and to read it."""
    storage = {name: rate for name, rate in (("read", read), ("write", write)) if rate}
    faults = [CRASH] if read else []
    metrics = run(*faults, cluster={"storage": storage}).metrics
    assert metrics["checkpoint_s"] == pytest.approx(4.0 * metrics["checkpoints"] if write else 0.0)
    plain = run(*faults).metrics["duration_s"] if not write else 10.0
    if not faults:
        assert metrics["duration_s"] == pytest.approx(plain + (36.0 if write else 0.0))
    elif not write:
        assert metrics["duration_s"] == pytest.approx(plain + 4.0)
    else:  # at 3 s the first checkpoint is under way: from the beginning, and nothing to read
        assert metrics["duration_s"] == pytest.approx(5.0 + 46.0)


def test_without_a_checkpoint_from_the_beginning() -> None:
    assert run(CRASH, every=None).metrics["duration_s"] == pytest.approx(15.0)


@pytest.mark.parametrize(("exits_after", "back"), [("400 ms", 5.0), ("4 s", 7.25)])
def test_a_slow_exit(exits_after: str, back: float) -> None:
    """What it has sent arrives, nobody takes its place before it is over, and it is noticed as any crash."""
    cluster = {"workers": 1, "network": {"bandwidth": "80 kbit/s"}}  # a push takes 0.4 s, until 3.6
    crash = {"worker": 0, "at": "3250 ms", "crash": True, "back_after": "1750 ms"}
    for fault, arrives in ((crash, 0), (crash | {"exits_after": exits_after}, 1)):
        result = run(fault, strategy="asynchronous", on="continue", stop={"time": "9 s"}, cluster=cluster)
        assert len(result.records.query("event == 'update' and 3.25 < end < 5")) == arrives
        assert result.metrics["lost_samples"] == 32 * (1 - arrives)
        assert result.metrics["time_to_detect_s"] == pytest.approx(0.5)
    assert result.metrics["time_to_recover_s"] == pytest.approx(back - 3.25 + 0.4)  # first it pulls


def test_a_spare_takes_over_at_once() -> None:
    assert run(CRASH, on="spare").metrics["duration_s"] == pytest.approx(3.5 + 8.0)


def test_a_warning_is_noticed_sooner() -> None:
    taken = {"worker": 2, "at": "3 s", "notice": "30 s", "back_after": "2 s"}
    assert run(taken).metrics["time_to_detect_s"] == 0.0
    assert run(taken, on="spare").metrics["duration_s"] == pytest.approx(3.0 + 8.0)


def test_a_checkpoint_is_written_when_notice_is_given() -> None:
    """Noticed at 2.05 s: updates 21 and 22 are saved, long before the next checkpoint that is due."""
    taken = {"worker": 2, "at": "3.05 s", "notice": "1 s", "back_after": "2 s"}
    metrics = run(taken, every=1000).metrics
    assert metrics["checkpoints"] == 2
    assert metrics["duration_s"] == pytest.approx(5.05 + 7.8)


@pytest.mark.parametrize("fault", [HANG, LINK])
def test_what_is_over_before_it_is_noticed_only_delays(fault: Any) -> None:
    """The round that it falls into waits for it; nothing is lost."""
    slow = run(fault, cluster={"detect": "10 s"}).metrics
    assert 11.9 <= slow["duration_s"] <= 12.0 + 1e-9
    assert slow["lost_samples"] == slow["failures"] == 0
    assert run(fault).metrics["failures"] == 1


@pytest.mark.parametrize(
    ("on", "fault", "message"),
    [
        (
            "stop",
            CRASH,
            r"worker 2 \(rank 2\) crashed at 3 s .* noticed at 3.5 s; recovery.on_failure is stop",
        ),
        ("stop", HANG, r"worker 1 \(rank 1\) stood still at 3 s"),
        ("stop", LINK, r"worker 1 \(rank 1\) was cut off at 3 s"),
        ("restart", {"worker": 2, "at": "3 s", "crash": True}, "does not come back"),
        ("wait", {"worker": 2, "at": "3 s", "crash": True}, "does not come back"),
        ("restart", {"worker": 2, "mtbf": "60 ms", "back_after": "1 s"}, "again and again"),
    ],
)
def test_a_run_that_a_failure_ends_says_why(
    on: str, fault: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "_IN_VAIN", 20)
    with pytest.raises(SimulationError, match=message):
        run(fault, on=on)


def test_a_barrier_goes_on_with_who_is_there() -> None:
    """A worker is gone for good: rounds go on as they were, with a mean over three."""
    result = run({"worker": 2, "at": "3 s", "crash": True}, on="continue")
    assert result.metrics["duration_s"] == pytest.approx(10.5, abs=0.11)
    updates = result.records[result.records["event"] == "update"]
    assert set(updates.groupby("version").size()) == {3, 4}


def test_a_barrier_waits_for_who_is_gone() -> None:
    result = run(CRASH, on="wait")
    assert result.metrics["duration_s"] == pytest.approx(12.0, abs=0.11)
    assert set(result.records[result.records["event"] == "update"].groupby("version").size()) == {4}


@pytest.mark.parametrize(
    "fault",
    [
        CRASH | {"at": "3.05 s"},
        CRASH | {"at": "3.05 s", "exits_after": "200 ms"},
        HANG | {"at": "3.05 s"},
    ],
)
def test_a_worker_that_is_back_begins_its_mini_batch_again(fault: Any) -> None:
    """None is left out: a run that waits for it has the bits of one that nothing befalls."""
    settings: dict[str, Any] = {"on": "wait", "stop": {"steps": 50}, **LEARNING}
    whole, failed = run(**settings), run(fault, **settings)
    assert failed.metrics["failures"] == 1
    assert failed.metrics["lost_samples"] == 0
    assert np.array_equal(failed.parameters, whole.parameters)
    cut_off = failed.records[failed.records["kind"] == "cut off"]
    assert [*cut_off["end"]] == [3.05]


def test_a_link_is_cut_though_nobody_is_there() -> None:
    """From 3 to 5 s worker 1 is gone; its messages wait until 8 s."""
    crash = {"worker": 1, "at": "3 s", "crash": True, "back_after": "2 s"}
    cut = {"link": {"host": 1}, "at": "4 s", "down_for": "4 s"}
    result = run(crash, cut, on="continue", strategy="asynchronous", stop={"time": "10 s"})
    sent = result.records.query("event == 'message' and node == 1 and start > 5")
    assert sent["end"].min() == pytest.approx(8.0, abs=0.1)


def test_nothing_befalls_a_worker_that_has_made_its_last_mini_batch() -> None:
    slow = {"stragglers": [{"worker": 1, "slowdown": 10.0}]}
    crash = {"worker": 0, "at": "5 s", "crash": True, "back_after": "1 s"}
    result = run(crash, strategy="asynchronous", stop={"steps": 20}, cluster=slow)
    assert result.metrics["failures"] == 0
    assert result.metrics["duration_s"] == pytest.approx(20.0)


def test_a_run_that_ends_while_it_is_down_has_lost_that_time() -> None:
    metrics = run(CRASH | {"at": "5.05 s", "back_after": "9 s"}, stop={"time": "10 s"}).metrics
    assert metrics["samples"] == 50 * 4 * 32
    assert metrics["goodput"] == pytest.approx(metrics["samples"] / 10.0)
    assert metrics["availability"] == pytest.approx(1 - 4.95 / (5 * 10.0))


def test_a_failure_that_nobody_notices_before_the_end_does_not_count() -> None:
    metrics = run(CRASH | {"at": "9.75 s"}, stop={"time": "10 s"}).metrics
    assert metrics["failures"] == 0
    assert metrics["time_to_detect_s"] is None


def test_spares_fail_as_who_was_there_before() -> None:
    """One failure in 100 s of each of four places, whose spares are there half a second later.

    Each costs half a step besides, of a second.
    """
    slow = {"compute": {"time": {"distribution": "constant", "value": "1 s"}}}
    fault = {"mtbf": "100 s", "crash": True}
    result = run(fault, on="spare", every=1, stop={"time": "5000 s"}, cluster=slow)
    assert result.metrics["failures"] == pytest.approx(200, rel=0.25)
    assert result.metrics["availability"] == pytest.approx(1 - 200 * 0.5 / (5 * 5000), abs=1e-3)
    assert result.metrics["goodput"] == pytest.approx(128 * (1 - 200 * 1.0 / 5000), rel=0.01)


def test_others_do_not_wait_in_asynchronous_training() -> None:
    """Three workers make their gradients while one is gone for 2 s, which makes none."""
    metrics = run(CRASH, on="continue", strategy="asynchronous", stop={"time": "10 s"}).metrics
    assert metrics["updates"] == pytest.approx(4 * 100 - 20, abs=2)


def test_a_gradient_that_is_dropped_after_the_last_update_was_computed() -> None:
    """It is late for that update: of two backup workers the slower one's always is."""
    slower = {"workers": 2, "stragglers": [{"worker": 1, "slowdown": 1.2}]}
    result = run(strategy="backup-workers", on="continue", stop={"time": "970 ms"}, cluster=slower)
    records = result.records
    assert records["end"][records["event"] == "drop"].max() > result.span[1]
    assert result.metrics["dropped"] == 8
    assert result.metrics["samples"] == 9 * 32
    assert result.metrics["lost_samples"] == 0
    assert not [*broken(result)]


def test_a_faulty_run_is_a_pure_function() -> None:
    faults = {"mtbf": "15 s", "back_after": {"distribution": "exponential", "mean": "1 s"}}
    first, again = run(faults), run(faults)
    assert first.records.equals(again.records)
    assert not run(faults, seed=1).records.equals(first.records)


@pytest.mark.parametrize("strategy", ["synchronous", "all-reduce", "asynchronous", "gossip"])
def test_a_far_fault_and_checkpoints_that_take_no_time_change_nothing(strategy: str) -> None:
    plain = run(strategy=strategy, every=None, on="stop")
    watched = run({"worker": 0, "at": "1000 s", "crash": True}, strategy=strategy)
    same = watched.records["event"] != "checkpoint"
    columns = ["node", "peer", "start", "end", "version", "batches", "nbytes"]
    found, expected = (
        frame[columns].sort_values(columns, ignore_index=True)
        for frame in (watched.records[same], plain.records)
    )
    assert found.equals(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"strategy": "all-reduce-jobs", "on": "continue"},
            "recovery.on_failure: all-reduce-jobs cannot go on",
        ),
        (
            {"parallelism": {"tensor": 2}, "strategy": "all-reduce", "on": "wait"},
            "recovery.on_failure: not built yet where workers compute a gradient together",
        ),
        ({"strategy": "hogwild"}, "recovery.checkpoint: hogwild writes no checkpoints"),
        ({"strategy": "all-reduce", "faults": [SERVER]}, r"cluster.faults\[0\].server: all-reduce has no"),
        (
            {"strategy": "gossip", "faults": [{"workers": {"add": 2}, "at": "1 s"}], "on": "continue"},
            r"cluster.faults\[0\].workers: gossip cannot have workers that join",
        ),
        (
            {"strategy": "all-reduce", "faults": [{"workers": {"add": 2}, "at": "1 s"}]},
            "recovery.on_failure: must be continue or wait where workers of all-reduce join or leave",
        ),
        (
            {"parallelism": {"pipeline": 2}, "on": "continue"},
            "on_failure: not built yet where workers compute",
        ),
        (
            {"strategy": {"name": "asynchronous", "answer_codec": "fp16"}, "on": "wait"},
            "on_failure: not built yet for an answer_codec or the codec rows",
        ),
        (
            {"on": "wait", "cluster": {"servers": {"hierarchy": {"groups": 2}}}},
            "on_failure: not built yet for relays",
        ),
    ],
)
def test_what_is_not_built_is_said(change: dict[str, Any], message: str) -> None:
    change = dict(change)
    faults = change.pop("faults", [CRASH])
    with pytest.raises(lockstep.ScenarioError, match=message):
        run(*faults, **change)


def test_who_is_back_before_it_is_noticed_has_recovered_then() -> None:
    again = [CRASH | {"at": at, "back_after": "200 ms"} for at in ("3 s", "6 s")]
    metrics = run(*again, on="continue").metrics
    assert metrics["failures"] == 2
    assert metrics["time_to_recover_s"] == pytest.approx(0.2)


@pytest.mark.parametrize("on", ["continue", "wait"])
def test_a_server_that_does_not_come_back_ends_the_run(on: str) -> None:
    with pytest.raises(SimulationError, match=r"server 0 .* at 3 s .* it does not come back \(back_after\)"):
        run({"server": 0, "at": "3 s", "crash": True}, on=on, stop={"time": "10 s"})


def test_a_timeline_has_the_gaps(tmp_path: Path) -> None:
    result = run(CRASH, cluster={"storage": {"write": "100 kB/s"}})
    write([result], tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    (down,) = [event for event in events if event.get("cat") == "fault"]
    assert (down["name"], down["dur"]) == ("crash", 2e6)
    assert [event for event in events if event.get("cat") == "checkpoint" and event["name"] == "write"]
