"""Timelines: their structure, what is on which track, which message led to what; from both engines."""

import json
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.analysis.arrows import arrows
from lockstep.analysis.records import Recorder
from lockstep.analysis.tracks import lanes, tracks
from lockstep.job.plan import Plan
from lockstep.simulator.topology import topology
from tests.support.command_line import Lockstep, fine
from tests.support.results import result_of
from tests.support.scenarios import ENGINES, scenario
from tests.support.traces import Event, trace, written


def names(events: list[Event], pid: int = 1) -> list[str]:
    """The tracks of a process in their order, without their further lanes."""
    found = {e["tid"]: e["args"] for e in events if e["pid"] == pid and e["name"] == "thread_name"}
    order = {e["tid"]: e["args"] for e in events if e["pid"] == pid and e["name"] == "thread_sort_index"}
    called = [found[tid]["name"] for tid in sorted(found, key=lambda tid: order[tid]["sort_index"])]
    return [name for name in called if not name.endswith(")")]


def slices(events: list[Event], name: str, pid: int = 1) -> list[tuple[str, float, float]]:
    """Track, start and duration of the slices of a name."""
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == pid}
    found = [e for e in events if e["ph"] == "X" and e["name"] == name and e["pid"] == pid]
    return [(tracks[e["tid"]], e["ts"], e["dur"]) for e in found]


# --- both engines -------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("strategy", ["asynchronous", "all-reduce"])
def test_both_engines_draw_the_same_tracks(strategy: str, tmp_path: Path) -> None:
    network = {"bandwidth": "100 Mbit/s", "latency": "1 ms"}
    small = scenario(cluster__workers=2, cluster__network=network, strategy__name=strategy, stop__steps=3)
    predicted, measured = (engine(small) for engine in ENGINES.values())
    events = written(tmp_path, predicted, measured)
    assert names(events, 1) == names(events, 2)
    links = set(predicted.utilisation["resource"].cat.categories)  # type: ignore[index]
    drawn = {name for name in names(events) if "link" in name}
    assert drawn == {link for link in links if "server" not in link or strategy == "asynchronous"}
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == [
        f"predicted: test ({strategy}, 2 workers)",
        f"measured: test ({strategy}, 2 workers)",
    ]
    for pid in (1, 2):
        assert len(slices(events, "gradient", pid)) == 6
        assert len(slices(events, "update", pid)) == 6
    first = [min(at for _, at, _ in slices(events, "gradient", pid)) for pid in (1, 2)]
    assert first[0] == first[1]
    if strategy == "asynchronous":
        for run in (predicted, measured):
            assert (
                arrows(run)["effect"].isin(run.records.index[run.records["event"] == "update"])
            ).sum() == 6
    counted = {e["name"] for e in events if e["ph"] == "C"}
    assert "worker 0's up-link, busy" in counted
    assert {e["pid"] for e in events if e["ph"] == "C"} == {1}


CLUSTERS: list[dict[str, Any]] = [
    {"cluster__servers": {"count": 2}},
    {"cluster__servers": {"count": 2, "colocated": True}},
    {"cluster__workers_per_host": 2, "cluster__network": {"bandwidth": "1 Gbit/s", "duplex": "half"}},
    {"cluster__servers": {"count": 2, "hierarchy": {"groups": 2}}, "cluster__workers_per_host": 3},
    {
        "cluster__servers": {"count": 1, "hierarchy": {"groups": 2}, "colocated": True},
        "cluster__network": {"bandwidth": "1 Gbit/s", "intra_host": {"bandwidth": "1 GB/s"}},
    },
]


@pytest.mark.parametrize("changes", CLUSTERS)
def test_links_are_called_as_in_the_simulator(changes: dict[str, Any]) -> None:
    plan = Plan.of(scenario(**{"cluster__network": {"bandwidth": "1 Gbit/s"}, **changes}))
    there = [link.id.name for link in topology(plan.scenario.cluster).links]
    here = [name for name in tracks(plan).names if "'s" in name]
    assert [name for name in here if "inner" not in name] == [name for name in there if "inner" not in name]
    assert {name for name in there if "inner" in name} <= set(here)


SHAPES: dict[str, dict[str, Any]] = {
    "synchronous": {"strategy__name": "synchronous", "strategy__chunks": 3},
    "backup": {"strategy__name": "backup-workers"},
    "gossip": {"strategy__name": "gossip"},
    "d-psgd": {"strategy__name": "d-psgd"},
    "ad-psgd": {"strategy__name": "ad-psgd"},
    "relays": {"cluster__servers": {"count": 2, "hierarchy": {"groups": 2, "fan_out": 1}}},
    "buckets": {"strategy__name": "all-reduce", "strategy__buckets": 2, "cluster__compute__backward": 0.5},
    "hogwild": {"strategy__name": "hogwild"},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_strategy_has_a_sound_timeline(shape: str, tmp_path: Path) -> None:
    cluster = {"cluster__network": {"bandwidth": "10 Mbit/s", "latency": "1 ms", "message_overhead": "20 us"}}
    jitter = {"distribution": "exponential", "mean": "10 ms"}
    found = lockstep.simulate(scenario(**cluster, cluster__compute__time=jitter, **SHAPES[shape]))
    events = written(tmp_path, found)
    assert slices(events, "gradient")
    led, rows = arrows(found), found.records
    cause, effect = rows.loc[led["message"]].reset_index(), rows.loc[led["effect"]].reset_index()
    at = effect["end"].where(effect["event"] != "gradient", effect["start"])
    assert (cause["end"] <= at).all()
    assert (cause["peer"] == effect["node"]).all()
    pushed = rows[rows["event"].isin(["update", "drop"]) & (rows["node"] != rows["peer"])]
    if shape not in ("buckets", "hogwild"):  # whose workers get no message that is somebody's gradient
        missing = set(pushed.index) - set(led["effect"])
        assert not missing, rows.loc[sorted(missing)]


# --- by hand ------------------------------------------------------------------------------------------------


def test_arrows_go_through_both_links_to_the_update_and_to_the_gradient(tmp_path: Path) -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 1.0, 2.0, 0)
        r.message(0, 1, 2.0, 2.5, 3.0, "push", 8)
        r.update(1, 0, 3.5, 0, 0, 1)
        r.message(1, 0, 3.5, nan, 4.0, "parameters", 8)
        r.gradient(0, 4.0, 5.0, 1)

    events = written(tmp_path, result_of(write, workers=1))
    assert names(events) == [
        "worker 0", "worker 0's up-link", "worker 0's down-link",
        "server 0", "server 0's up-link", "server 0's down-link", "evaluations",
    ]  # fmt: skip
    assert slices(events, "push") == [
        ("worker 0's up-link", 1e6, 0.5e6),
        ("server 0's down-link", 1.5e6, 0.5e6),  # half a second of latency
    ]
    assert slices(events, "parameters") == [
        ("server 0's up-link", 2.5e6, 5e5),
        ("worker 0's down-link", 2.5e6, 5e5),
    ]
    assert slices(events, "update") == [("server 0", 2.5e6, 0)]
    flows = [(e["id"], e["ph"], e["ts"] / 1e6) for e in events if e["ph"] in "stf"]
    assert sorted(flows) == sorted(
        [(1, "s", 1.0), (1, "t", 1.5), (1, "f", 2.5), (3, "s", 2.5), (3, "t", 2.5), (3, "f", 3.0)]
    )
    update = next(e for e in events if e["name"] == "update")
    assert update["args"] == {"version": 0, "staleness": 0, "worker": "worker 0", "mini_batches": 1}


def test_a_push_that_waits_is_not_mistaken_for_the_next() -> None:
    def write(r: Recorder) -> None:
        r.message(0, 2, 0.0, nan, 1.0, "commit", 8)
        r.message(0, 2, 1.0, nan, 2.0, "commit", 8)  # arrived before the first is applied
        r.update(2, 0, 3.0, 0, 0, 1)
        r.update(2, 0, 4.0, 1, 1, 1)

    led = arrows(result_of(write))
    assert led.to_numpy().tolist() == [[0, 2], [1, 3]]


def test_what_is_not_finite_is_still_json(tmp_path: Path) -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 1.0, 0)
        r.evaluation(0.0, 0, 2.0, None)
        r.evaluation(1.0, 1, float("inf"), 0.5)

    events = written(tmp_path, result_of(write))
    found = [e["args"] for e in events if e["name"] == "evaluation"]
    assert found == [
        {"version": 0, "loss": 2.0, "accuracy": None},
        {"version": 1, "loss": "inf", "accuracy": 0.5},
    ]
    counted = [(e["name"], e["args"]) for e in events if e["ph"] == "C"]
    assert counted == [("held-out", {"loss": 2.0})]  # "held-out loss" to Perfetto


def test_a_run_without_records(tmp_path: Path) -> None:
    assert not [e for e in written(tmp_path, result_of(lambda r: None)) if e["ph"] != "M"]


def test_lanes_hold_what_overlaps_apart() -> None:
    track = np.array([0, 0, 1, 0, 0, 0])
    start = np.array([0, 1, 1, 2, 3, 9])
    end = np.array([5, 3, 9, 4, 3, 10])
    assert lanes(track, start, end).tolist() == [0, 1, 0, 2, 0, 0]  # an instant is nobody's neighbour


# --- the command --------------------------------------------------------------------------------------------


def test_a_simulations_timeline_is_the_same_byte_for_byte(
    command: Lockstep, sizes_only: Path, tmp_path: Path
) -> None:
    files = [tmp_path / "new" / "a.json", tmp_path / "b.json.gz", tmp_path / "c.json.gz"]
    for file in files:
        said = fine(command("simulate", sizes_only, "--timeline", file))
        assert f"Timeline written to {file}" in said
    assert trace(files[0]) == trace(files[1])
    assert files[1].read_bytes() == files[2].read_bytes()


@pytest.mark.real
def test_a_replay_and_a_validation_have_timelines(
    command: Lockstep, sizes_only: Path, tmp_path: Path
) -> None:
    file = tmp_path / "both.json"
    only = fine(command("validate", sizes_only, "--json", "--timeline", file, "--out", tmp_path / "out"))
    json.loads(only)
    assert names(trace(file), 1) == names(trace(file), 2)
    real, again = tmp_path / "out" / "asynchronous" / "measured", tmp_path / "again.json"
    fine(command("simulate", "--replay", real, "--timeline", again))
    assert names(trace(again)) == names(trace(file))


@pytest.mark.parametrize("file", ["trace.txt", "folder.json", "small.yaml/trace.json"])
def test_a_file_that_cannot_be_written(
    file: str, command: Lockstep, sizes_only: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder.json").mkdir()
    ended = command("simulate", sizes_only, "--timeline", tmp_path / file)
    assert ended.status == 2
    assert "--timeline" in ended.err
    assert ended.err.count("\n") == 1
    assert not ended.out


# --- the still picture --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "shown"),
    [(8, range(8)), (9, (0, 7, 8))],  # of nine: the fastest, the slowest, and a median one
)
def test_a_gantt_picture_has_a_row_for_each_worker_server_and_link(
    workers: int, shown: Sequence[int]
) -> None:
    from lockstep.analysis.plots import gantt

    network = {"bandwidth": "100 Mbit/s", "latency": "1 ms"}
    slowdowns = {worker: 1 + 5 * worker % 9 / 20 for worker in range(1, workers)}
    stragglers = [{"worker": worker, "slowdown": slowdown} for worker, slowdown in slowdowns.items()]
    found = lockstep.simulate(
        scenario(cluster__workers=workers, cluster__network=network, cluster__stragglers=stragglers)
    )
    for width in (3.5, 7.0):
        figure = gantt([found], width=width)
        (panel,) = figure.axes
        rows = [label.get_text() for label in panel.get_yticklabels()]
        assert rows == [
            row
            for who in (*(f"worker {worker}" for worker in shown), "server 0")
            for row in (who, "up-link", "down-link")
        ]
        assert figure.get_figwidth() == width
        assert panel.get_xlabel() == "time since the first mini-batch (ms)"
        assert {text.get_text() for text in figure.legends[0].texts} >= {"computing", "sending", "update"}
        assert ("6 more workers" in str(figure.get_supxlabel())) == (workers > len(shown))


@pytest.mark.parametrize(
    ("intra_host", "per_host", "links"),
    [
        ({"bandwidth": "100 MB/s"}, 2, ["inner link"]),
        (None, 2, []),
        ({"bandwidth": "100 MB/s"}, 1, ["up-link", "down-link"]),
    ],
)
def test_a_gantt_picture_has_the_links_on_which_something_takes_time(
    intra_host: dict[str, str] | None, per_host: int, links: list[str]
) -> None:
    from lockstep.analysis.plots import gantt

    network = {"bandwidth": "100 Mbit/s"} | ({"intra_host": intra_host} if intra_host else {})
    found = lockstep.simulate(
        scenario(
            cluster__workers=2,
            cluster__workers_per_host=per_host,
            cluster__network=network,
            strategy={"name": "all-reduce"},
        )
    )
    (panel,) = gantt([found]).axes
    rows = [label.get_text() for label in panel.get_yticklabels()]
    assert [row for row in rows if "link" in row] == links * (2 // per_host)
