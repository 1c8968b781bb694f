"""What the other tests here have found, each by itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
import zmq

import lockstep
from lockstep import ScenarioError, replaying
from lockstep.analysis import saved, timeline
from lockstep.analysis.entries import Entry
from lockstep.analysis.report import gather
from lockstep.executor.hub import Hub
from lockstep.executor.remote import answers
from lockstep.executor.sockets import Doors, Place
from lockstep.executor.transport import Transport
from lockstep.executor.watchdog import Watchdog
from lockstep.scenarios import shipped
from lockstep.studies.accuracy_suite import campaign
from tests.support import ROOT
from tests.support.laws import soon
from tests.support.replays import learning
from tests.support.scenarios import SIZES
from tests.support.tried import one_message

DEEP = b"[" * 100_000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a simulation that learned."""
    lockstep.simulate(learning("asynchronous", stop={"steps": 2})).save(tmp_path)
    return tmp_path


def refused(ask: Callable[[], Any], word: str) -> None:
    """It is refused with one message that has this word."""
    with soon(), pytest.raises(ScenarioError, match=word) as caught:
        ask()
    one_message(caught.value)


RECORDS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "a column is gone": (lambda t: t.drop(columns="left"), "no column 'left'"),
    "words for numbers": (lambda t: t.assign(nbytes="x"), "nbytes is no whole number"),
    "no number": (lambda t: t.assign(end=np.nan), "not finite"),
    "a number that is none": (lambda t: t.assign(version=0.5), "version is no whole number"),
    "backwards": (lambda t: t.assign(end=t["end"] - 1e9), "ends before it starts"),
    "somebody else": (lambda t: t.assign(node=10**6), "node is not of the run's 6 processes"),
    "a negative size": (lambda t: t.assign(nbytes=-5), "nbytes is negative"),
    "too many": (lambda t: t.assign(batches=1 << 40), "batches is negative, or too large"),
    "another event": (lambda t: t.assign(event="explosion"), "event is 'explosion'"),
    "no word": (lambda t: t.assign(kind=None), "kind is 'None'|kind is 'nan'"),
}


@pytest.mark.parametrize("case", RECORDS)
def test_records_of_nothing(run: Path, case: str) -> None:
    change, word = RECORDS[case]
    file = run / "records.parquet"
    change(pd.read_parquet(file)).to_parquet(file, index=False)
    refused(lambda: saved.load(run), word)


def test_records_in_which_one_word_became_another(run: Path) -> None:
    """A file that is still a table: only its checksums tell."""
    file = run / "records.parquet"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"parameters", b"parametert", 1))
    refused(lambda: saved.load(run), "cannot be read")


def test_records_of_other_types_are_the_same(run: Path) -> None:
    """Whole numbers and words as another program has them."""
    before = saved.load(run).records
    table = pd.read_parquet(run / "records.parquet").astype({"kind": str, "event": str, "node": "int64"})
    table.to_parquet(run / "records.parquet", index=False)
    found = saved.load(run)
    pd.testing.assert_frame_equal(found.records.astype({"event": str}), before.astype({"event": str}))
    assert "cat" in dir(found.records["kind"])


def test_records_of_after_the_last_nanosecond(run: Path) -> None:
    """A timeline has whole ones, and 2⁶³ of them at the most."""
    table = pd.read_parquet(run / "records.parquet")
    table.assign(left=1e300).to_parquet(run / "records.parquet", index=False)
    timeline.write([saved.load(run)], run / "timeline.json")


STALENESS = dict.fromkeys(("mean", "p50", "p99", "max"), 1)
RESULTS: dict[str, tuple[Any, str]] = {
    "a list": ([], "cannot be read"),
    "another engine": ({"engine": 7}, "engine is '7'"),
    "words for numbers": ({"throughput": "much"}, "throughput is 'much'"),
    "infinity": ({"speedup": float("inf")}, "Infinity is not a number"),
    "a number for many": ({"staleness": 3}, "staleness is '3'"),
    "no texts": ({"warnings": [3]}, "warnings are not all texts"),
    "a worker that is missing": ({"breakdown_by_worker": {"wait": [0.1]}}, "wait is not of all workers"),
    "lists in a histogram": (
        {"staleness": {**STALENESS, "histogram": {"1": [2]}}},
        "histogram has what is not",
    ),
    "more workers": ({"workers": 9, "breakdown_by_worker": {}}, "workers are not the scenario's"),
    "a table without its mean": ({"staleness": {"p50": 3}}, "staleness has not all of mean, p50, p99, max"),
}


@pytest.mark.parametrize("case", RESULTS)
def test_results_of_nothing(run: Path, case: str) -> None:
    said, word = RESULTS[case]
    file = run / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **said} if isinstance(said, dict) else said))
    refused(lambda: saved.load(run), word)


@pytest.mark.parametrize("name", ["scenario", "workers", "duration_s", "updates", "staleness", "bottleneck"])
def test_results_without(run: Path, name: str) -> None:
    file = run / "result.json"
    said = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in said.items() if key != name}))
    refused(lambda: saved.load(run), f"it has no {name}")


def test_parameters_with_a_broken_head(run: Path) -> None:
    (run / "parameters.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'shape': (20," + b" " * 99)
    refused(lambda: saved.load(run), "cannot be read")
    np.save(run / "parameters.npy", np.array(["a"]))
    refused(lambda: saved.load(run), "no vector of numbers")


@pytest.mark.parametrize("change", [{"start": np.inf}, {"busy": "x"}, {"resource": 3}])
def test_a_utilisation_of_nothing(run: Path, change: dict[str, Any]) -> None:
    file = run / "utilisation.parquet"
    pd.read_parquet(file).assign(**change).to_parquet(file, index=False)
    refused(lambda: saved.load(run), "utilisation")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "3"])
def test_a_run_that_was_killed_while_it_said_why(tmp_path: Path, text: str) -> None:
    (tmp_path / "incomplete").mkdir()
    (tmp_path / "incomplete" / "status.json").write_text(text)
    refused(lambda: saved.load(tmp_path), "incomplete: it was killed")


LOG = dict(zip(Entry._fields, (0, 0, "begin", "cpu", -1, -1, -1, 0.0), strict=True))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"kind": ""}, "does not say what began"),
        ({"word": "compute"}, "number is negative"),
        ({"node": -1}, "log is of nobody"),
        ({"number": 0.5}, "number is no number"),
        ({"kind": None}, "kind is no word"),
    ],
)
def test_a_log_of_nothing(run: Path, change: dict[str, Any], word: str) -> None:
    pd.DataFrame([LOG | change]).to_parquet(run / "interleaving.parquet", index=False)
    refused(lambda: replaying.load(run), word)


def test_a_sweep_with_what_no_scenario_can_have(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(SIZES + "sweep: {cluster.memory: [1 GB, 2 GB]}\n")
    lockstep.sweep(file, out=tmp_path / "out", jobs=1)
    table = pd.read_parquet(tmp_path / "out" / "results.parquet")
    table.assign(**{"cluster.memory": -1e9}).to_parquet(tmp_path / "out" / "results.parquet")
    refused(lambda: gather(tmp_path / "out"), "has what no scenario can have")


@pytest.mark.parametrize("name", ["breakdown.wait", "workload.batch_size", "throughput"])
def test_a_sweep_with_words_for_numbers(tmp_path: Path, name: str) -> None:
    file = tmp_path / "results.parquet"
    result = lockstep.simulate(learning("asynchronous", stop={"steps": 2}))
    pd.DataFrame([result.row]).assign(**{name: "x"}).to_parquet(file)
    refused(lambda: lockstep.compare(file, file), f"its {name} is not a number everywhere")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: t.drop(columns="part"), "has no points"),
        (lambda t: t.assign(scenario=3), "scenario of a point is '3'"),
        (lambda t: t.assign(scenario="[]"), "the scenario of a point is none"),
        (lambda t: t.assign(scenario="{}"), "cannot be used"),
        (lambda t: t.assign(throughput="x"), "throughput of a point is 'x'"),
        (lambda t: t.assign(throughput=np.inf), "throughput of a point is inf"),
    ],
)
def test_measurements_of_nothing(tmp_path: Path, change: Any, word: str) -> None:
    table = pd.read_parquet(ROOT / "benchmarks" / "truth" / "measured.parquet").head(2)
    change(table).to_parquet(tmp_path / "measured.parquet")
    refused(lambda: campaign.load(tmp_path), word)


@pytest.mark.parametrize(("key", "name"), [("model", "cnn"), ("name", "downpour")])
def test_a_long_name_is_shown_in_short(tmp_path: Path, key: str, name: str) -> None:
    text = shipped()["quickstart"].read_text().replace(f"{key}: {name}", f"{key}: {'x' * 5000}", 1)
    (tmp_path / "long.yaml").write_text(text)
    refused(lambda: lockstep.load(tmp_path / "long.yaml"), "unknown")


def test_a_profilers_trace_with_a_number_beyond_floats(tmp_path: Path) -> None:
    event = {"ph": "X", "name": "ProfilerStep#1", "ts": 10**400, "dur": 1}
    (tmp_path / "trace.json").write_text(json.dumps([event]))
    time = f"{{distribution: empirical, file: {tmp_path / 'trace.json'}}}"
    refused(lambda: lockstep.load("quickstart", [f"cluster.compute.time={time}"]), "cannot read 'trace.json'")


def test_a_message_that_is_too_deep(tmp_path: Path) -> None:
    transport = Transport(dist.HashStore(), 1, Place(tmp_path), torch.zeros(3), [0])
    with zmq.Context() as context, context.socket(zmq.PUSH) as other:
        other.connect(transport.store.get("address/1").decode())
        other.send(DEEP + b"\n")
        with soon(), pytest.raises(ValueError, match="no message of a run came in"):
            transport.receive(5)
    transport.close()


@pytest.mark.parametrize(
    "said",
    [
        b"[]",
        DEEP,
        b'{"status": []}',
        b'{"status": {"done": "much"}}',
        b'{"status": {"longest_s": NaN}}',
        b'{"status": {"sent": {"1": "x"}}}',
        b'{"status": {"waits": [[1, "x"]]}}',
        b'{"call": ["file", "", -1]}',
        b'{"call": ["file", "never-begun", -1]}',
    ],
)
def test_the_hub_hears_on(tmp_path: Path, said: bytes) -> None:
    """What is no report ends neither its thread nor what asks it."""
    hub = Hub(Place(tmp_path), Watchdog(2, None), answers(dist.HashStore(), tmp_path, tmp_path))
    doors = Doors("0", Place(tmp_path))
    socket = doors.connect(zmq.DEALER, "hub", hub.endpoint, b"0")
    try:
        socket.send_multipart([said, b""])
        socket.send_multipart([b'{"about": {"n": 1}}'])
        while hub.about.get(0) != {"n": 1}:
            assert socket.poll(5000), "nobody hears any more"
            socket.recv_multipart()
        assert hub.stall() is None
        assert (hub.refused, hub.end) == (1, "") or "cannot be written" in hub.end
    finally:
        doors.close()
        hub.close()
