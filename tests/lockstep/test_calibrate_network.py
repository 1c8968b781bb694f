"""Calibration of a network: what is read off records, what is fitted, and real probes."""

import os
import stat
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lockstep
from lockstep.calibration import crowd as of_many
from lockstep.calibration import hosts, network, path, readings
from lockstep.calibration.estimates import Estimates
from lockstep.calibration.hosts import run_on
from lockstep.calibration.probes import BACKLOG, FAN_OUT, ONE, crowded, probes
from lockstep.executor.launch import RunFailed
from lockstep.job.plan import Plan
from lockstep.scenarios import ScenarioError
from lockstep.simulator.engine import simulate
from tests.support.commands import SOON, is_alive, until
from tests.support.nightly import drawn
from tests.support.testbed import needs_testbed

SOLVED = 1e-5  # how near the solver comes: without noise, intervals are narrower than that
BUSY = {"network.message_overhead": 1e-4, "network.receive_overhead": 3e-5, "apply_overhead": 1.5e-4}
OURS = {"memory_bandwidth": 3e9, **BUSY}
CABLES = {"network.goodput": 0.93, "network.burst.size": 6e3, "network.burst.line_rate": 1.25e9}
SHAPED = {"network.latency": 3e-4, **CABLES, **OURS}
PLAIN = {"network.latency": 1e-4, "network.bandwidth": 1.5e9, **OURS}


def some(shaped: bool) -> network.Probes:
    """Every second probe, and the first: simulating all of them again and again takes its time."""
    chosen = network.all_probes(shaped, False, seconds=0.25)
    return {name: probe for number, (name, probe) in enumerate(chosen.items()) if number % 2 == 0}


def synthetic(chosen: network.Probes, settings: dict[str, float]) -> dict[str, list[pd.DataFrame]]:
    """What the probes would measure on a cluster like that, twice."""
    return {
        name: [simulate(Plan.of(path.on_cluster(probe, settings))).records] * 2
        for name, probe in chosen.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("shaped", "true"), [(True, SHAPED), (False, PLAIN)])
def test_the_path_is_found_again(shaped: bool, true: dict[str, float]) -> None:
    chosen = some(shaped)
    measured = {
        name: [readings.exchanges_s(r) for r in runs] for name, runs in synthetic(chosen, true).items()
    }
    fit = path.fit(chosen, measured, path.SHAPED if shaped else path.PLAIN, OURS | (CABLES if shaped else {}))
    values = dict(fit.values)
    if not shaped:
        values["network.bandwidth"] = 1 / values.pop(path.BYTE.key)
    assert values == pytest.approx({key: true[key] for key in values}, rel=0.01)
    for name, simulated in fit.simulated.items():
        assert simulated == pytest.approx(float(np.median(measured[name][0])), rel=1e-3)
    for key, (low, high) in fit.intervals.items():
        assert low <= fit.values[key] * (1 + SOLVED)
        assert high >= fit.values[key] * (1 - SOLVED)


@pytest.mark.slow
def test_noise_widens_the_intervals_but_hardly_moves_the_path() -> None:
    chosen = some(True)
    rng = np.random.default_rng(1)
    measured = {}
    for name, runs in synthetic(chosen, SHAPED).items():
        clean = readings.exchanges_s(runs[0])
        noise = rng.gamma(1.0, 5e-5, size=(2, len(clean))) - 5e-5 * np.log(2)  # of median 0
        measured[name] = [clean + noise[0], clean + noise[1]]
    measured[ONE] = [times + (rng.random(len(times)) < 0.2) * 10e-3 for times in measured[ONE]]  # outliers
    fit = path.fit(chosen, measured, path.SHAPED, OURS | CABLES)
    for key, value in fit.values.items():
        low, high = fit.intervals[key]
        assert low < value < high
        assert low <= SHAPED[key] <= high
    assert fit.values["network.latency"] == pytest.approx(3e-4, abs=3e-5)


def test_a_path_that_takes_longer_than_a_probe_lasts_is_found() -> None:
    """The fit tries such networks on its way, whatever was measured."""
    chosen = {ONE: network.all_probes(False, False, seconds=0.25)[ONE]}
    known = {key: value for key, value in PLAIN.items() if key != path.LATENCY.key}
    fit = path.fit(chosen, {ONE: [np.full(5, 2.0)]}, [path.LATENCY], known)  # s, of a probe of 0.25 s
    assert fit.values[path.LATENCY.key] == pytest.approx(1.0, rel=1e-3)  # there and back


def test_an_update_touches_what_the_simulator_counts() -> None:
    chosen = network.all_probes(True, False, seconds=0.25)
    found = network._busy(chosen, synthetic(chosen, SHAPED))["memory_bandwidth"]
    # the overhead is read off an update of one value, whose four bytes take 4e-6 of the time of a large one
    assert float(np.median(found)) == pytest.approx(OURS["memory_bandwidth"], rel=1e-5)


CROWDED = {**SHAPED, "network.burst.train": 5792.0}


@cache
def of_a_crowd() -> dict[str, pd.DataFrame]:
    """What the crowded probes would measure, whatever messages take of the cores."""
    return {name: table for name, (table, _) in synthetic(crowded(1, 12.5e6, 0.1), CROWDED).items()}


@pytest.mark.parametrize(
    ("message_us", "large_us", "update_us"),
    drawn(
        [(*message, update) for message in ((90, 0), (170, 0), (170, 40)) for update in (30, 150)],
        one_in=2,
        family=lambda case: case[:2],
    ),
)
def test_what_messages_take_of_the_cores_is_read_off_what_processes_took(
    message_us: int, large_us: int, update_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """130 us of a message are overheads, and the rest is both ends'; if it took less, overheads have less.

    One of more than a train takes more. A step takes 400 us besides, which count for no message, nor does an
    update: 150 us where processes have slept, and there perhaps less, of hardly any bytes and so of each.
    """
    monkeypatch.setattr(of_many, "cores", lambda: 2)
    alone, *talking = crowd = crowded(1, 12.5e6, 0.1)
    measured = {name: [table.copy()] * 2 for name, table in of_a_crowd().items()}
    core_s = {}
    for name, (table, _) in measured.items():
        sent = table[table["event"] == "message"]["nbytes"]
        assert len(sent) == 0 or name != alone
        steps, work = (table["event"] == "gradient").sum(), table[table["event"] == "work"]
        assert len(work)
        update_s = (work["end"] - work["start"]).sum() - len(work) * (150 - update_us) * 1e-6
        if name == alone:
            table.loc[work.index, "end"] -= (150 - update_us) * 1e-6
        of_messages = message_us * len(sent) + 0.014 * sent.sum() + large_us * (sent > 5792).sum()
        core_s[name] = [(400 * steps + of_messages) * 1e-6 + update_s] * 2
    before = Estimates(CROWDED, {}, {"network": {"probes": []}})
    found = of_many.with_processing(before, crowd, measured, core_s)
    each = {key.removeprefix("network.processing."): value for key, value in found.settings.items()}
    close = 1e-6 if update_us == 150 else 3e-3  # there 0.1 us for 48 B, too, count as overhead
    assert each["per_message"] == pytest.approx(max(0, message_us - 130) / 2 * 1e-6, rel=close)
    assert each["overheads"] == pytest.approx(min(message_us, 130) * 1e-6, rel=close)
    assert each["update"] == pytest.approx(update_us * 1e-6, rel=close)
    assert each["per_byte"] == pytest.approx(7e-9, rel=close)
    assert each["gradient"] == pytest.approx(4e-4, rel=close)
    assert each["per_large_message"] == pytest.approx(large_us / 2 * 1e-6, rel=close, abs=5e-8)
    assert each["large"] == 5792.0
    assert each["cores"] == 2
    assert [row["probe"] for row in found.evidence["network"]["probes"]] == talking


@pytest.mark.parametrize(("there_are", "in_use"), [(2, 1.7), (2, 2.0), (4, 2.3), (1, 1.0)])
def test_cores_that_are_idle_while_work_waits_are_found(there_are: int, in_use: float) -> None:
    """From how long steps take, of messages whose costs are known."""
    talking = dict(list(crowded(1, 12.5e6, 0.1).items())[2:5])
    costs = {"per_message": 3e-4, "per_byte": 2e-8, "gradient": 4e-4, "cores": in_use}
    settings = {**SHAPED, **{f"network.processing.{key}": value for key, value in costs.items()}}
    exchanges = {name: [np.full(5, seconds)] for name, seconds in path.simulated(talking, settings).items()}
    found = of_many._cores(talking, exchanges, {**settings, "network.processing.cores": float(there_are)})
    assert found == pytest.approx(in_use, abs=0.01 * there_are)


def messages(*rows: tuple[int, int, float, float]) -> pd.DataFrame:
    """Answers: (sender, receiver, sent at, taken in at)."""
    table = pd.DataFrame(rows, columns=["node", "peer", "start", "end"])
    return table.assign(event="message", kind="parameters", nbytes=4)


def test_overheads_are_read_off_what_one_process_does_in_a_row() -> None:
    fan_out = messages((2, 0, 1.0, 1.1), (2, 1, 1.0001, 1.1), (2, 0, 2.0, 2.1), (2, 1, 2.0003, 2.1))
    assert readings.sending_s(fan_out) == pytest.approx([1e-4, 3e-4])
    # The second waited while the first was taken in, the third did not; the receiver's clock is 5 s ahead.
    backlog = messages((1, 0, 1.0, 6.001), (1, 0, 1.0005, 6.00175), (1, 0, 1.002, 6.003))
    assert readings.taking_in_s(backlog) == pytest.approx([7.5e-4])


@pytest.mark.slow
def test_findings_have_settings_intervals_and_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = some(False)
    sample = {key: np.full(9, value) for key, value in OURS.items()}
    monkeypatch.setattr(network, "_busy", lambda *_: sample)
    found = network.found(chosen, synthetic(chosen, PLAIN), "loopback")
    assert found.settings["network.intra_host.bandwidth"] == found.settings["network.bandwidth"]
    for key, value in found.settings.items():
        low, high = found.intervals[key]
        assert low <= value * (1 + SOLVED)
        assert high >= value * (1 - SOLVED)
    rows = found.evidence["network"]["probes"]
    assert [row["probe"] for row in rows] == list(chosen)
    for row in rows:
        assert row["quartiles"][0] <= row["measured"] <= row["quartiles"][1]
        assert abs(row["error"]) < 1e-3
        assert row["exchanges"] >= 3


def test_a_path_that_is_too_slow_for_the_probes_is_said_to_be() -> None:
    chosen = some(False)
    nothing = {name: [table.iloc[:0] for table in runs] for name, runs in synthetic(chosen, PLAIN).items()}
    with pytest.raises(RunFailed, match="too slow"):
        network.found(chosen, nothing, "path")


@pytest.mark.parametrize(("reading", "what"), [("updates_s", "an update"), ("exchanges_s", "an exchange")])
def test_bytes_hidden_by_noise_are_an_error(reading: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = network.all_probes(False, False, seconds=0.25)
    chosen = {name: chosen[name] for name in (ONE, FAN_OUT, BACKLOG, "1 worker, 1,000,000 B")}
    measured = synthetic(chosen, PLAIN)
    monkeypatch.setattr(readings, reading, lambda records: np.full(5, 2e-3))
    said = rf"^{what} of 1,000,000 bytes took 2 ms, no longer than of 4 \(2 ms\): .* measure again when"
    with pytest.raises(RunFailed, match=said):
        network.found(chosen, measured, "loopback")


def small(monkeypatch: pytest.MonkeyPatch, largest: int, *names: str) -> None:
    """Let calibration make a few short probes only."""

    def few(sizes: Any, rate: float | None, seconds: float) -> network.Probes:
        chosen = probes((1, 4000, 16_000, largest), rate, 0.3)
        return {name: chosen[name] for name in chosen if name in names}

    monkeypatch.setattr(network, "probes", few)
    monkeypatch.setattr(network, "_TURNS", 1)
    monkeypatch.setattr(network, "SECONDS", 0.3)  # of those with many processes
    monkeypatch.setattr(network, "_LARGE", 500_000)  # few updates say nothing of less: noise hides it
    monkeypatch.setattr(of_many, "_CLOSE", 0.1)  # each number of cores that is tried is simulated for seconds


def looks_right(found: network.Estimates, *keys: str) -> None:
    assert {*BUSY, "network.latency", *keys} <= set(found.settings)
    assert set(found.intervals) <= set(found.settings)
    assert all(np.isfinite(value) and value >= 0 for value in found.settings.values())
    assert 0 < found.settings["network.message_overhead"] < 0.01
    assert len(found.evidence["network"]["probes"]) >= 3


def test_jitter_is_read_off_the_ways_of_messages() -> None:
    """Whatever few messages were held up: 3% of them by 50 ms."""
    rng = np.random.default_rng(1)
    start, kinds = np.arange(4000) * 0.01, np.array(["push", "parameters"] * 2000)
    way = np.where(kinds == "push", 3e-4, 6e-4) + 2e-4 * rng.standard_exponential(4000)
    way += 0.05 * (rng.random(4000) < 0.03)
    records = pd.DataFrame({"event": "message", "kind": kinds, "start": start, "end": start + way})
    assert np.median(readings.jitter_s(records)) == pytest.approx(2e-4, rel=0.08)


@pytest.mark.real
@pytest.mark.alone
def test_the_loopback_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, 1_000_000, ONE, FAN_OUT, BACKLOG, "1 worker, 4,000,000 B")
    told: list[float] = []
    looks_right(network.measure(progress=told.append), "network.bandwidth", "network.intra_host.latency")
    assert told == sorted(told)
    assert told[0] == 0.0


@pytest.mark.real
@pytest.mark.alone
@needs_testbed
def test_a_testbed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, 64_000, ONE, FAN_OUT, BACKLOG, "1 worker, 256,000 B")
    found = network.measure(testbed=True)
    looks_right(found, "network.goodput")
    assert ("network.burst.size" in found.settings) == ("network.burst.line_rate" in found.settings)
    assert "network.bandwidth" not in found.settings
    assert 0.8 < found.settings["network.goodput"] <= 1.0


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a command named ssh on the PATH: it does what is given, in a shell with HOST and COMMAND."""

    def put(does: str) -> None:
        script = tmp_path / "ssh"
        script.write_text(
            f'#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done; HOST="$1" COMMAND="$2"\n{does}\n',
            encoding="utf-8",
        )
        script.chmod(script.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return put


@pytest.mark.real
def test_two_hosts_run_a_probe(ssh: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    ssh('exec sh -c "$COMMAND"')
    chosen = network.all_probes(False, True, seconds=0.5)
    assert all(probe.cluster.workers <= 2 for probe in chosen.values())
    result = run_on(["me@127.0.0.1", "127.0.0.1"], chosen[ONE])
    assert len(readings.exchanges_s(result.records)) >= 3
    assert result.engine == "executor"


def test_between_two_clocks_a_message_may_end_before_it_starts(tmp_path: Path) -> None:
    probe = network.all_probes(False, True)[ONE]
    run = lockstep.simulate(probe)
    ahead = run.records.assign(start=run.records["start"] + 5.0)
    replace(run, records=ahead, disturbances=["taken"]).save(tmp_path)
    with tarfile.open(tmp_path / "run.tar", "w") as tar:
        for name in ("result.json", "records.parquet"):
            tar.add(tmp_path / name, name)
    with (tmp_path / "run.tar").open("rb") as archive:
        found = hosts._unpacked(archive, "node1", probe)
    assert (found.records["end"] < found.records["start"]).any()
    assert found.disturbed
    assert "taken" in found.disturbances


@pytest.mark.parametrize("sent", [b"", b"Welcome to node1\n", b"x" * 2048])
def test_what_is_no_result_is_told_with_the_host(sent: bytes) -> None:
    with pytest.raises(RunFailed, match="the part of host node1 sent no result"):
        hosts._unpacked(BytesIO(sent), "node1", network.all_probes(False, True)[ONE])


def test_a_host_that_fails_is_named(ssh: Callable[[str], None]) -> None:
    ssh('[ "$HOST" = good ] && exec cat\necho "ssh: no such host as $HOST: Name error" >&2; exit 255')
    probe = network.all_probes(False, True)[ONE]
    with pytest.raises(RunFailed, match="host bad failed: ssh: no such host as bad"):
        run_on(["good", "bad"], probe)


def test_a_process_that_is_killed_is_told_without_torchruns_traceback(ssh: Callable[[str], None]) -> None:
    said = [
        "error: the run ends",
        "Signal 15 (SIGTERM) received by PID 7",
        "  traceback : Signal 9 (SIGKILL) received by PID 77",
        "error_file: <N/A>",
    ]
    ssh("printf '%s\\n' " + " ".join(f"'{line}'" for line in said) + " >&2; exit 1")
    with pytest.raises(RunFailed, match=r"failed: Signal 9 \(SIGKILL\) received by PID 77$") as failed:
        run_on(["one", "two"], network.all_probes(False, True)[ONE])
    assert failed.value.details == ""


@pytest.mark.slow
def test_a_host_that_hears_nothing_any_more_ends_its_part(
    ssh: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of torchrun: what would sleep for long, on one host deaf to SIGTERM."""
    ssh('export HOST; [ "$HOST" = deaf ] && trap "" TERM; exec sh -c "$COMMAND"')
    (tmp_path / "torchrun").write_text(f'#!/bin/sh\necho $$ > "{tmp_path}/pid-$HOST"\nexec sleep 100\n')
    (tmp_path / "torchrun").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "torchrun"))
    monkeypatch.setattr(hosts, "_LOST_S", 1)
    with pytest.raises(RunFailed, match="the part of host hears failed: "):
        run_on(["hears", "deaf"], network.all_probes(False, True)[ONE])
    for host in ("hears", "deaf"):
        assert until(lambda host=host: not is_alive(int((tmp_path / f"pid-{host}").read_text())), SOON)


@pytest.mark.parametrize("named", [("one",), ("one", "two", "three"), ("one", ""), ("-oProxyCommand=x", "b")])
def test_hosts_must_be_two(named: tuple[str, ...]) -> None:
    with pytest.raises(ScenarioError, match="two hosts"):
        network.measure(hosts=named)
    with pytest.raises(ScenarioError, match="one of the two"):
        network.measure(testbed=True, hosts=named)
