"""What stops, is cut off, or does not end: one message within seconds of the deadline, and nothing left."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import lockstep
from lockstep.analysis import incomplete, saved, streams
from lockstep.analysis.folders import settle
from lockstep.executor import process, testbed
from lockstep.executor.launch import RunFailed
from lockstep.executor.namespaces import Namespace, in_a_thread
from lockstep.scenarios import ScenarioError
from tests.support.command_line import of_the_run
from tests.support.commands import (
    HANGS,
    SLOWNESS,
    SOON,
    Command,
    commands,
    processes,
    until,
    wait_until_on_disk,
)
from tests.support.scenarios import scenario

DEADLINE = round(4 * SLOWNESS)  # s
_WITHIN = ("--deadline", str(DEADLINE))
OPTIONS = {
    **dict.fromkeys(["worker", "server", "launcher", "fork server", "all killed"], _WITHIN),
    "collective": (*_WITHIN, "--set", "strategy={name: all-reduce, algorithm: native}"),
}


@pytest.fixture(scope="module")
def under_way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Command]]:
    with commands(tmp_path_factory.mktemp("run"), OPTIONS) as found:
        yield found


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "rank", "who"),
    [
        ("worker", 1, "worker 1 (rank 1)"),
        ("server", 4, "server 1 (rank 4)"),
        ("collective", 2, "worker 2 (rank 2)"),
    ],
)
def test_a_process_that_is_stopped_is_named(under_way, name: str, rank: int, who: str) -> None:
    run = under_way[name]
    wait_until_on_disk(run.out, gradient={0, 1, 2})
    begun = time.monotonic()
    stop(run.ranks()[rank])
    status, said = run.ends(DEADLINE)
    assert time.monotonic() - begun > DEADLINE / 2  # its last sign was before
    assert status == 3
    last = said.splitlines()[-1]
    assert last.startswith(f"error: {who} on {os.uname().nodename} has given no sign for ")
    assert ": it is stopped (SIGSTOP)" in last
    assert "Traceback" not in said
    assert set(run.kept()["node"]) >= {0, 1, 2}


@pytest.mark.real
def test_the_processes_of_a_launcher_that_is_stopped_end_and_so_does_it_when_it_goes_on(under_way) -> None:
    run = under_way["launcher"]
    wait_until_on_disk(run.out, gradient={0, 1, 2})
    ranks = run.ranks()
    stop(run.process.pid)
    assert until(lambda: not {*ranks} & {*processes(run.process.pid)}, DEADLINE + SOON)
    assert "the process that watches the run has given no sign for" in run.stderr.read_text()
    run.process.send_signal(signal.SIGCONT)
    status, said = run.ends()
    assert status == 3
    assert "error: this process stood still for " in said.splitlines()[-1]
    assert set(run.kept()["node"]) >= {0, 1, 2}


@pytest.mark.real
def test_a_fork_server_that_is_stopped_is_named(under_way) -> None:
    run = under_way["fork server"]
    wait_until_on_disk(run.out, gradient={0, 1, 2})
    (parent,) = {processes(run.process.pid)[rank] for rank in run.ranks()}
    stop(parent)
    status, said = run.ends(DEADLINE)
    assert status == 3
    assert f"error: the process {parent}, which all others are forked from, has been stopped" in said
    assert set(run.kept()["node"]) >= {0, 1, 2}


@pytest.mark.real
def test_what_was_on_disk_outlives_all_processes(under_way) -> None:
    run = under_way["all killed"]
    wait_until_on_disk(run.out, gradient={0, 1, 2})
    time.sleep(1)
    for pid in processes(run.process.pid):
        with suppress(ProcessLookupError):  # one that ended with those before it
            os.kill(pid, signal.SIGKILL)
    run.process.wait(SOON)
    left = run.out / "incomplete"
    assert incomplete.why(left) == "the run goes on, or was killed"
    records = lockstep.records(run.out)
    assert records is not None
    assert set(records.loc[records["event"] == "gradient", "node"]) == {0, 1, 2}
    assert records.loc[records["event"] == "gradient", "end"].max() > 0.3
    assert streams.streams(left)
    with pytest.raises(ScenarioError, match="the run in it is incomplete: the run goes on, or was killed"):
        saved.load(run.out)


@pytest.mark.real
@pytest.mark.alone
def test_a_process_that_was_stopped_and_went_on_marks_the_run() -> None:
    """The run is long enough for the stop, and shorter than the deadline."""

    def strike() -> None:
        from lockstep.executor import launch

        assert until(lambda: launch.multiprocessing.active_children(), HANGS)
        time.sleep(2 * SLOWNESS)
        pid = next(c.pid for c in launch.multiprocessing.active_children() if c.name == "lockstep-1")
        stop(pid)
        time.sleep(1.5)
        os.kill(pid, signal.SIGCONT)

    striker = Thread(target=strike)
    striker.start()
    result = lockstep.run(scenario(stop={"time": f"{5 * SLOWNESS} s"}), attempts=1)
    striker.join()
    (said,) = [line for line in result.metrics["warnings"] if line.startswith("disturbed")]
    still = re.match(r"disturbed: worker 1 stood still for ([\d.]+)", said)
    assert still is not None, said
    assert 1 <= float(still[1]) < 1.5 + 0.5 * SLOWNESS


@pytest.mark.real
def test_an_undisturbed_run_says_nothing() -> None:
    assert not of_the_run(lockstep.run(scenario()).metrics["warnings"])


# ------------------------------------------------------------------ a cable of the testbed


LOADED = """
name: cut
cluster:
  workers: 2
  servers: 1
  network: {bandwidth: 20 Mbit/s}
  compute: {time: {distribution: constant, value: 20 ms}}
workload: {parameters: 20_000}
strategy: synchronous
stop: {time: 10 min}
"""


def card(pid: int, **changes: Any) -> None:
    """Change the card of the host that a process is on; without changes it only hears from now on."""

    def change() -> None:
        from lockstep.executor.wiring import CARD

        with open(f"/proc/{pid}/ns/net", "rb", buffering=0) as space:
            Namespace(space).enter()
            from pyroute2 import IPRoute

            with IPRoute() as ip:
                (index,) = ip.link_lookup(ifname=CARD)
                if changes:
                    ip.link("set", index=index, **changes)
                else:  # nothing leaves any more; what the others send still comes
                    for half in ("198.18.0.0/17", "198.18.128.0/17"):
                        ip.route("add", dst=half, type="blackhole")

    in_a_thread(change)


@pytest.fixture(scope="module")
def on_testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Command]]:
    try:
        testbed.require()
    except ScenarioError as error:
        pytest.skip(error.problem)
    options = ("--testbed", "--deadline", str(DEADLINE))
    each = dict.fromkeys(["down", "again", "mute"], options)
    with commands(tmp_path_factory.mktemp("cut"), each, LOADED) as found:
        yield found


@pytest.mark.real
def test_another_user_gets_into_no_host_of_a_testbed(on_testbed) -> None:
    rank = on_testbed["down"].ranks()[1]
    code = f"""
import os
os.setuid(65534)
for path in ("/proc/{rank}/ns/net", "/proc/{rank}/mem"):
    try:
        open(path)
    except PermissionError:
        continue
    print("opened", path)
"""
    done = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True, timeout=HANGS)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.real
@pytest.mark.parametrize("how", ["down", "mute"])
def test_a_cable_that_is_cut_is_told(on_testbed, how: str) -> None:
    """In both directions, or in one."""
    run = on_testbed[how]
    wait_until_on_disk(run.out, gradient={0, 1})
    card(run.ranks()[1], **({"state": "down"} if how == "down" else {}))
    status, said = run.ends(2 * DEADLINE)
    assert status == 3
    assert "worker 1 (rank 1)" in said.splitlines()[-1] or "nobody gets on" in said.splitlines()[-1]
    assert set(run.kept()["node"]) >= {0, 1}


@pytest.mark.real
def test_a_cable_that_is_down_for_a_moment_loses_nothing(on_testbed) -> None:
    """TCP sends again what was lost; or a message is missing, and that is said."""
    run = on_testbed["again"]
    victim = run.ranks()[0]
    card(victim, state="down")
    time.sleep(1)
    card(victim, state="up")
    time.sleep(3)
    if run.process.poll() is None:
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.ends()[0] == 130
        records = run.kept()
        steps = records[records["event"] == "gradient"].groupby("node")["version"].max()
        assert abs(steps[0] - steps[1]) <= 1
    else:
        status, said = run.ends()
        assert status == 3
        assert "lost" in said


# ------------------------------------------------------------------ time limits, full disks


@pytest.mark.real
@pytest.mark.parametrize("engine", ["run", "simulate"])
def test_a_time_limit(command, sizes_only: Path, engine: str, tmp_path: Path) -> None:
    out, seconds = tmp_path / "out", round({"run": 6, "simulate": 2}[engine] * SLOWNESS)
    endless = ["stop={steps: 1000000}", "cluster.workers=4"] if engine == "simulate" else ["stop={time: 1 h}"]
    changes = [option for change in endless for option in ("--set", change)]
    ended = command(engine, sizes_only, *changes, "--timeout", seconds, "--out", out)
    assert ended.status == 3
    assert ended.err.splitlines()[-1] == f"error: it has not ended within {seconds} s (--timeout)"
    if engine == "run":
        assert incomplete.why(out / "incomplete") == f"it has not ended within {seconds} s (--timeout)"
        assert len(lockstep.records(out)) > 10


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_is_full_ends_the_run_and_keeps_the_result_before(tmp_path: Path) -> None:
    file, out, first = tmp_path / "s.yaml", tmp_path / "disk", tmp_path / "first"
    file.write_text(LOADED.replace("20_000", "10").replace("20 ms", "1 ms"))
    lockstep.simulate(lockstep.load(file, ["stop.time=0.2 s"])).save(first)
    out.mkdir()
    code = "from lockstep.cli import main; main()"
    run = f"{sys.executable} -c '{code}' run {file} --out {out}/o --json"
    fill = f"dd if=/dev/zero of={out}/fill bs=1k count=240 status=none"
    script = (
        f"mount -t tmpfs -o size=400k none {out} && cp -r {first} {out}/o && "
        f"sha256sum {out}/o/* > {tmp_path}/before && {fill}; "
        f"{run} --set stop.time='1 min' 2> {tmp_path}/err; "
        f"echo $? > {tmp_path}/status; sha256sum {out}/o/*.* > {tmp_path}/after"
    )
    subprocess.run(["unshare", "-m", "sh", "-c", script], timeout=HANGS, check=True)
    said = (tmp_path / "err").read_text()
    assert (tmp_path / "status").read_text() == "3\n", said
    assert "No space left on device" in said.splitlines()[-1]
    assert "Traceback" not in said
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_small_shared_memory_is_enough_for_a_run_and_named_by_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(LOADED.replace("10 min", "0.2 s") + "sweep: {seed: [1, 2]}\n")
    lockstep_ = f"{sys.executable} -c 'from lockstep.cli import main; main()'"
    script = (
        f"mount -t tmpfs -o size=4k none /dev/shm; {lockstep_} run {tmp_path}/s.yaml --json > {tmp_path}/out"
        f" && {lockstep_} sweep {tmp_path}/s.yaml --jobs 2 2> {tmp_path}/err; echo $?"
    )
    command = ["unshare", "-m", "sh", "-c", script]
    done = subprocess.run(command, timeout=HANGS, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("3\n", "")
    assert (tmp_path / "out").read_text().startswith('{"schema"')
    last = (tmp_path / "err").read_text().splitlines()[-1]
    assert last == "error: /dev/shm, which one job (--jobs 1) needs not: No space left on device"


def test_a_result_is_replaced_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = lockstep.simulate(scenario(workload={"problem": "quadratic"}))
    learning.save(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert "parameters.npy" in before

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("lockstep.analysis.parquet.write", full)
        with pytest.raises(OSError, match="No space"):
            lockstep.simulate(scenario()).save(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    lockstep.simulate(scenario()).save(tmp_path)
    assert not (tmp_path / "parameters.npy").exists()  # nothing is left of the other run


@pytest.mark.parametrize("moved", range(5))
def test_whoever_is_killed_while_files_are_replaced_leaves_it_to_the_next(tmp_path: Path, moved: int) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    lockstep.simulate(scenario(workload={"problem": "quadratic"})).save(old)
    second = lockstep.simulate(scenario(seed=4))
    second.save(new)
    complete = old / ".complete"
    new.rename(complete)
    (complete / "parameters.npy.none").touch()
    for file in sorted(complete.iterdir())[:moved]:  # as far as it had come
        if file.name.endswith(".none"):
            (old / file.name.removesuffix(".none")).unlink()
            file.unlink()
        else:
            file.replace(old / file.name)
    found = saved.load(old)
    settle(old)
    assert found.metrics == second.metrics
    assert found.parameters is None
    assert not complete.exists()


@pytest.mark.real
def test_two_runs_into_one_folder_are_refused(tmp_path: Path) -> None:
    first = incomplete.Incomplete(tmp_path, scenario())
    with pytest.raises(ScenarioError, match="another run is writing to"):
        lockstep.run(scenario(), out=tmp_path)
    first.__exit__()
    lockstep.run(scenario(), out=tmp_path)
    assert not (tmp_path / "incomplete").exists()


# ------------------------------------------------------------------ messages that are lost


async def one_is_mute(node: Any) -> None:
    """Worker 0 waits for a word of worker 1 that never comes."""
    if node.index == 0:
        await node.receive("word", 1)
    Event().wait()


the_real_main = process.main


def main_that_knows_it(*arguments: Any) -> None:
    from lockstep.strategies import STRATEGIES, Strategy

    STRATEGIES["one_is_mute"] = Strategy(one_is_mute)
    the_real_main(*arguments)


@pytest.mark.real
def test_a_worker_whose_word_never_comes_is_waited_for_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from lockstep.strategies import STRATEGIES, Strategy

    monkeypatch.setattr("lockstep.executor.process.main", main_that_knows_it)
    monkeypatch.setitem(STRATEGIES, "one_is_mute", Strategy(one_is_mute))
    said: list[str] = []
    with pytest.raises(
        RunFailed, match=r"worker 1 \(rank 1\) on .* has not got on for .*; worker 0 waited for it"
    ):
        lockstep.run(
            scenario(strategy="one_is_mute", cluster__workers=2), deadline=2 * DEADLINE, waiting=said.append
        )
    assert "waiting for worker 1" in said
