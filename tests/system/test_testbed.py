"""The testbed: whose paths it has, real runs on it, and that nothing is ever left of it.

What needs root or a kernel's features is skipped where they are missing, with the reason.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.executor import testbed, wiring
from lockstep.executor.fabric import fabric
from lockstep.executor.shaping import DATA, FRAME, QUEUE
from lockstep.executor.testbed import Testbed
from lockstep.scenarios import ScenarioError
from lockstep.simulator.topology import topology
from lockstep.validation import described, on_testbed
from tests.support.commands import HANGS, SOON, Command, commands, processes, until
from tests.support.scenarios import scenario
from tests.support.testbed import NETWORK, RACKS, SHAPES, cluster, hosts_of, needs_testbed

MAIN = "from lockstep.cli import main; main()"


@pytest.mark.parametrize("name", SHAPES)
def test_frames_take_the_simulators_paths(name: str) -> None:
    described = cluster(*SHAPES[name])
    hosts = described.hosts + described.servers.hosts
    ours, theirs = fabric(described, hosts), topology(described)
    for source in range(hosts):
        for target in range(hosts):
            if source != target:
                rates = [ours.rates[way] for way in ours.route(source, target)]
                links = [link.capacity for link in theirs.path(source, target)[0]]
                assert [rate for rate in rates if rate is not None] == links


def test_workers_alone_have_the_workers_hosts() -> None:
    assert fabric(cluster({}, {}), 4).hosts == range(4)
    assert fabric(cluster({"workers_per_host": 3}, {}), 2).hosts == range(2)


@pytest.mark.parametrize(
    ("network", "key"),
    [
        ({"duplex": "half"}, "cluster.network.duplex"),
        (
            {"varying": [{"links": "*", "schedule": [{"at": "1 s", "factor": 0.5}]}]},
            "cluster.network.varying",
        ),
        ({"background": [{"from": 0, "to": 1}]}, "cluster.network.background"),
    ],
)
def test_networks_that_a_testbed_cannot_have_are_refused(network: dict[str, Any], key: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        testbed.check(scenario(cluster__network={**NETWORK, **network}))
    assert caught.value.key == key


def test_too_many_hosts_are_refused() -> None:
    with pytest.raises(ScenarioError, match="at most 511 hosts"):
        testbed.check(scenario(cluster__workers=2000))
    testbed.check(scenario(cluster__workers=2000, cluster__workers_per_host=4))


def test_it_says_what_it_does_not_have() -> None:
    def said(**network: Any) -> list[str]:
        described = scenario(cluster__network=network).cluster
        warnings = Testbed(described, hosts_of(described)).warnings()
        return [warning.removeprefix("cluster.network.").split()[0] for warning in warnings]

    assert said(**NETWORK) == []
    assert said(**NETWORK, latency="1 ms", intra_host={"latency": "1 ms"}) == ["latency:", "intra_host:"]
    assert said(**NETWORK, burst={"size": "1 MB", "line_rate": "1 Gbit/s"}) == ["burst:"]
    assert said(**NETWORK, queue="1 MB") == ["queue:"]
    assert said(**NETWORK, tcp={}) == ["tcp:"]
    assert said(topology={**RACKS, "latency": "1 ms"}) == ["latency:", "bandwidth"]
    pair = {"between": [0, 1], "latency": "1 ms"}
    assert said(**NETWORK, topology={"kind": "sites", "hosts": [2, 2], "pairs": [pair]}) == ["latency:"]


def test_the_prediction_is_for_the_share_of_data_in_a_frame_and_for_the_buckets() -> None:
    there = on_testbed(scenario(cluster__network={"bandwidth": "100 Mbit/s"})).cluster.network
    assert there.goodput == DATA / FRAME
    assert there.queue == QUEUE
    assert there.burst is not None
    assert there.burst.size == 1562  # 0.125 ms
    assert there.burst.train == 4 * 1448
    assert there.burst.first == 8192 - 64
    in_order = on_testbed(scenario(cluster__network={"bandwidth": "100 Mbit/s", "tcp": {}}))
    assert in_order.cluster.network == there
    slow = on_testbed(scenario(cluster__network={"bandwidth": "20 Mbit/s"})).cluster.network.burst
    assert slow is not None
    assert slow.size == 1514
    assert slow.train == 2 * 1448
    assert on_testbed(scenario(cluster__network={})).cluster.network.burst is None
    own = scenario(cluster__network={
        "bandwidth": "1 Mbit/s", "goodput": 0.9, "burst": {"size": "1 B", "line_rate": "1 Gbit/s"},
        "queue": "1 B",
    })  # fmt: skip
    assert on_testbed(own) == own
    said = described(scenario(cluster__network={"bandwidth": "100 Mbit/s"}).cluster)
    assert (
        "with a goodput of 0.956: 1448 of 1514 bytes are data; and a burst of 1.6 kB and trains of 5.8 kB"
        in said
    )
    assert said.endswith("; and 64 kB of each message in the switches' queues")
    assert described(own.cluster) == "the scenario's network"


@needs_testbed
def test_nothing_leads_out_of_it() -> None:
    with Testbed(cluster({}, {}), hosts_of(cluster({}, {}))) as bed:
        namespace = bed.seat(0).namespace
        assert namespace
        names = {name for _, name in namespace.run(socket.if_nameindex)}
        assert names == {"lo", wiring.CARD}
        with pytest.raises(OSError, match="unreachable"):
            namespace.run(socket.create_connection, ("192.0.2.1", 9), 1)
        assert wiring.CARD not in {name for _, name in socket.if_nameindex()}


@pytest.mark.real
@needs_testbed
@pytest.mark.parametrize("strategy", ["synchronous", {"name": "all-reduce", "algorithm": "ring"}], ids=str)
def test_deterministic_runs_end_with_the_simulators_bits(strategy: str | dict[str, str]) -> None:
    learning = scenario(
        cluster__workers=3, cluster__workers_per_host=2, cluster__network={**NETWORK, "topology": RACKS},
        cluster__servers={"count": 2, "colocated": True}, strategy=strategy,
        workload={"dataset": "digits", "model": "mlp", "batch_size": 32},
    )  # fmt: skip
    real = lockstep.run(learning, testbed=True, attempts=1)
    assert real.metrics["parameters_sha256"] == lockstep.simulate(learning).metrics["parameters_sha256"]
    held = [os.readlink(f"/proc/self/fd/{number}") for number in held_open()]
    assert not [name for name in held if name.startswith("net:")]


def held_open() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        if os.path.islink(f"/proc/self/fd/{number}"):
            yield number


# ------------------------------------------------------------------ however it ends


def namespaces(pids: Sequence[int]) -> set[str]:
    """The network namespaces that processes are in or hold open, but this one's."""
    links = [path for pid in pids for path in (f"/proc/{pid}/ns/net", *fds(pid))]
    names = set()
    for link in links:
        try:
            names.add(os.readlink(link))
        except OSError:  # it has ended
            continue
    return {name for name in names if name.startswith("net:")} - {os.readlink("/proc/self/ns/net")}


def fds(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def left_of(found: set[str]) -> set[str]:
    """Which of these namespaces are still there: a process is in it, holds it open, or it is mounted."""
    everyone = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    mounts = Path("/proc/self/mountinfo").read_text()
    return (found & namespaces(everyone)) | {name for name in found if name in mounts}


@pytest.fixture(scope="module")
def under_way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Command]]:
    """Several testbeds at the same time."""
    changes = ("cluster.network={bandwidth: 100 Mbit/s}", "cluster.workers=2", "cluster.servers=1")
    options = ["--testbed", *(option for change in changes for option in ("--set", change))]
    with commands(tmp_path_factory.mktemp("run"), dict.fromkeys(SAYS, options)) as found:
        assert all(found[how] for how in SAYS)
        yield found


def strike(run: Command, how: str) -> None:
    if how == "worker":
        os.kill(run.ranks()[1], signal.SIGKILL)
    elif how == "launcher":
        run.process.kill()
    elif how == "Ctrl-C":
        os.killpg(run.process.pid, signal.SIGINT)
    else:
        run.process.terminate()


SAYS = {
    "worker": (3, "error: worker 1 (rank 1) died: killed by SIGKILL"),
    "launcher": (-signal.SIGKILL, ""),
    "Ctrl-C": (130, "error: interrupted"),
    "SIGTERM": (130, "error: interrupted"),
}


@pytest.mark.real
@needs_testbed
@pytest.mark.parametrize("how", SAYS)
def test_nothing_is_left(under_way: dict[str, Command], how: str) -> None:
    run = under_way[how]
    others = [
        command for name, command in under_way.items() if name != how and command.process.poll() is None
    ]
    own = namespaces(list(processes(run.process.pid)))
    assert len(own) == 3 + 1  # a host for each process, and the switches
    assert not own & namespaces([pid for other in others for pid in processes(other.process.pid)])
    strike(run, how)
    status, said = run.ends()
    assert (status, said.splitlines()[-1] if said else "") == SAYS[how]
    assert until(lambda: not left_of(own), SOON), left_of(own)
    assert all(len(processes(other.process.pid)) > 3 for other in others)  # these go on


def cannot(*options: str) -> str:
    """What `lockstep run --testbed` says in a process without the power to administer the machine."""
    code = (
        "import ctypes, os, sys\n"
        "for power in (12, 21):  # CAP_NET_ADMIN and CAP_SYS_ADMIN\n"
        "    ctypes.CDLL(None).prctl(24, power, 0, 0, 0)  # PR_CAPBSET_DROP: what it runs has it no more\n"
        f"os.execv(sys.executable, [sys.executable, '-c', {MAIN!r}, *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", code, *options, "--testbed"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="the testbed needs Linux")
@pytest.mark.parametrize("verb", ["run", "validate"])
def test_without_root_it_says_so_at_once(verb: str) -> None:
    said = cannot(verb, "quickstart")
    assert said.splitlines() == [said.strip()]
    assert "--testbed: the testbed needs root" in said


@needs_testbed
def test_a_kernel_without_token_buckets_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyroute2.netlink.exceptions import NetlinkError

    def refuse(*_: Any) -> None:
        raise NetlinkError(2, "No such file or directory")

    monkeypatch.setattr("lockstep.executor.wiring.shape", refuse)
    with pytest.raises(ScenarioError, match=r"this kernel has no token buckets \(sch_htb, cls_u32\)"):
        testbed.require.__wrapped__()


@needs_testbed
def test_a_machine_without_pyroute2_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyroute2", None)
    with pytest.raises(ScenarioError, match="the testbed needs the package pyroute2"):
        testbed.require.__wrapped__()
