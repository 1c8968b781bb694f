"""A run on several hosts: two network namespaces with host names of their own, and a torchrun in each."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

import lockstep
from lockstep.calibration import network, readings
from lockstep.calibration.hosts import run_on
from lockstep.calibration.probes import FAN_OUT
from lockstep.executor import addresses, keys, testbed
from lockstep.executor.namespaces import Namespace, in_a_thread, new_namespace
from lockstep.scenarios import ScenarioError
from tests.support.commands import HANGS, SOON, nodes, until, wait_until_on_disk
from tests.support.torchrun import ENTRY, QUADRATIC, SCENARIO


@pytest.fixture
def hosts() -> Iterator[list[Namespace]]:
    """Two namespaces with the addresses 10.77.0.1 and .2; the kernel removes them once nobody is in them."""
    try:
        testbed.require()
    except ScenarioError as error:
        pytest.skip(error.problem)
    if not (shutil.which("unshare") and shutil.which("nsenter")):
        pytest.skip("needs util-linux: unshare and nsenter")
    spaces: list[Namespace] = []

    def build() -> None:
        from pyroute2 import IPRoute

        spaces.extend(new_namespace() for _ in range(2))  # this thread is in the second now
        with IPRoute() as ip:
            ip.link(
                "add", ifname="card", kind="veth",
                peer={"ifname": "card", "net_ns_fd": spaces[0].file.fileno()},
            )  # fmt: skip
        for number, space in enumerate(spaces, 1):
            space.enter()
            with IPRoute() as ip:
                for name in ("lo", "card"):
                    (index,) = ip.link_lookup(ifname=name)
                    ip.link("set", index=index, state="up")
                ip.addr("add", index=index, address=f"10.77.0.{number}", prefixlen=24)

    in_a_thread(build)
    yield spaces
    for space in spaces:
        space.close()


@pytest.mark.real
def test_ctrl_c_on_one_host_ends_the_run_on_all(hosts: list[Namespace], tmp_path: Path) -> None:
    """Each knows its own name as an address of its loopback, as on Debian; others do not reach it there."""
    (tmp_path / "small.yaml").write_text(SCENARIO)
    (tmp_path / "entry.py").write_text(ENTRY)
    keys.make(tmp_path / "key")
    progress, running = tmp_path / "progress", []
    environment = {**os.environ, "PROGRESS": str(progress), "TMPDIR": str(tmp_path)}
    changes = ["--set", QUADRATIC, "--set", "strategy=all-reduce", "--set", "stop={time: 10 min}"]
    try:
        for number, space in enumerate(hosts, 1):
            out = tmp_path / f"out{number}"
            torchrun = [
                sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1",
                "--rdzv-backend", "c10d", "--rdzv-endpoint", "node1:29500", "--rdzv-id", "1",
                str(tmp_path / "entry.py"), str(tmp_path / "small.yaml"), "--out", str(out),
                "--key", str(tmp_path / "key"), *changes,
            ]  # fmt: skip
            known = tmp_path / f"hosts{number}"
            known.write_text(f"127.0.1.1 node{number}\n10.77.0.{3 - number} node{3 - number}\n")
            inside = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{space.file.fileno()}", "unshare", "-u", "-m"]
            host = f'hostname node{number} && mount --bind {known} /etc/hosts && exec "$@"'
            named = [*inside, "sh", "-c", host, "sh", *torchrun]
            running.append(subprocess.Popen(named, env=environment, stderr=subprocess.PIPE))
        assert until(lambda: progress.exists() or any(p.poll() is not None for p in running), HANGS)
        wait_until_on_disk(tmp_path / "out1", gradient={0})
        wait_until_on_disk(tmp_path / "out2", gradient={1})
        running[1].send_signal(signal.SIGINT)
        said = [process.communicate(timeout=3 * SOON)[1].decode() for process in running]
    finally:
        for process in running:
            process.kill()
    assert "error: node1: the run ends: rank 1 on node2" in said[0]
    assert f"What was measured until then: {tmp_path / 'out1' / 'incomplete'} on node1" in said[0]
    assert f"What was measured until then: {tmp_path / 'out2' / 'incomplete-host-1'} on node2" in said[1]
    records = lockstep.records(tmp_path / "out1")  # where rank 0 is, all could tell
    assert nodes(records, "gradient") == {0, 1}
    assert nodes(lockstep.records(tmp_path / "out2"), "gradient") == {1}
    assert records["version"].max() > 1


@pytest.mark.real
@pytest.mark.nightly
def test_calibration_runs_a_probe_on_both(
    hosts: list[Namespace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers on node1 and their server on node2; a command named ssh takes the place of ssh."""
    for number in (1, 2):
        known = f"127.0.1.1 node{number}\n10.77.0.{3 - number} node{3 - number}\n"
        (tmp_path / f"hosts-node{number}").write_text(known)
    entries = " ".join(
        f"node{number}) space={os.getpid()}/fd/{space.file.fileno()};;"
        for number, space in enumerate(hosts, 1)
    )
    script = f"""#!/bin/sh
while [ $# -gt 2 ]; do shift; done
case $1 in {entries} esac
host='hostname "$1"; mount --bind "{tmp_path}/hosts-$1" /etc/hosts; exec sh -c "$2"'
exec nsenter --net=/proc/$space unshare -u -m sh -c "$host" sh "$1" "$2"
"""
    (tmp_path / "ssh").write_text(script)
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    records = run_on(["node1", "node2"], network.all_probes(False, True, seconds=0.15)[FAN_OUT]).records
    assert nodes(records, "gradient") == {0, 1}
    assert nodes(records, "update") == {2}
    assert len(readings.sending_s(records)) >= 3  # the server sends to one worker, and then to the other
    assert not list((tmp_path / "tmp").iterdir())


def test_a_host_that_knows_its_name_as_a_loopback_address_asks_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = {"node1": "127.0.1.1", "10.0.0.2": "10.0.0.1"}
    monkeypatch.setattr(addresses, "_towards", sources.__getitem__)
    store = dist.HashStore()
    store.set("own address/1", "10.0.0.2")
    store.add("barrier/addresses", 1)
    assert addresses.own_address(store, 0, 2, "node1") == "10.0.0.1"
    monkeypatch.setattr(addresses, "_towards", lambda _: "127.0.0.1")
    assert addresses.own_address(dist.HashStore(), 0, 1, "localhost") == "127.0.0.1"
    assert addresses.card_of("127.0.0.1") == "lo"
    assert addresses.card_of("192.0.2.1") is None
