"""Who is not of a run: a process of another user, or on the network, that tries to take part in it.

They do what an attack on the product did: write into stores, send pushes, garbage, huge lengths; plant files.
"""

import json
import os
import resource
import shutil
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import zmq

import lockstep
from lockstep.executor import keys, peers
from lockstep.executor.folder import torchruns_folder
from lockstep.executor.heartbeat import Heartbeat
from lockstep.executor.hub import Hub
from lockstep.executor.remote import RemoteStore, answers
from lockstep.executor.sockets import Doors, Place
from lockstep.executor.transport import MessagesLost, Transport
from lockstep.executor.watchdog import Watchdog
from lockstep.scenarios import ScenarioError
from tests.support.commands import HANGS, SOON, Command, commands, processes, until

NOBODY = 65_534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
HUGE = struct.pack(">Q", 1 << 33)
GARBAGE = [b"hello", b"\x00" * 5, b"GET / HTTP/1.1\r\n\r\n", b"\xff" + HUGE + b"\x7f" + b"x" * 100]
# A ZMTP 3.1 greeting without security, a ready command, and a message that says it has 8 GiB.
ZMTP = (
    b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0" * 32
    + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x04PUSH" + b"\x02" + HUGE + b"x" * 1000
)  # fmt: skip


def attack(address: tuple[str, int]) -> None:
    """Whatever a stranger can send."""
    for words in (*GARBAGE, ZMTP):
        with socket.create_connection(address, timeout=2) as stranger:
            try:
                stranger.sendall(words)
                stranger.settimeout(0.3)
                stranger.recv(100)
            except OSError:
                pass


# ------------------------------------------------------------------ inside one host

STRANGER = """
import os, pathlib, socket, sys
os.setuid(65534)
folder, ports = sys.argv[1], sys.argv[2].split(",")
tried = []
for name in ("0", "1", "2", "3", "hub", "store"):
    with socket.socket(socket.AF_UNIX) as stranger:
        try:
            stranger.connect(f"{folder}/{name}")
            tried.append(f"connected to {name}")
        except PermissionError:
            pass
    try:
        pathlib.Path(folder, name).write_bytes(b"x")
        tried.append(f"wrote {name}")
    except PermissionError:
        pass
for port in filter(None, ports):
    with socket.create_connection(("127.0.0.1", int(port)), timeout=2) as stranger:
        stranger.sendall(bytes(1000))
print(*tried)
"""
# Long enough for a stranger to come; gloo's order of sums is forgotten after 500 steps.
STEPS = ("--set", "stop={steps: 500}", "--set", "cluster.compute.time.value=6 ms")
RUNS = {
    "native": (*STEPS, "--set", "strategy={name: all-reduce, algorithm: native}"),
    "synchronous": (*STEPS, "--set", "strategy=synchronous"),
}


def listening(pids: set[int]) -> list[int]:
    """The TCP ports on which these processes listen."""
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it has closed it meanwhile
                if (target := os.readlink(descriptor)).startswith("socket:["):
                    inodes.add(target[8:-1])
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, _, state, *rest = line.split()
        if state == "0A" and rest[5] in inodes:
            address, port = here.split(":")
            assert address == "0100007F"  # the loopback, nothing else
            found.append(int(port, 16))
    return found


def come_to(run: Command, ports: list[int]) -> None:
    """What another user of the machine tries at a run's sockets and folder."""
    (folder,) = run.temporary.glob("pymp-*/r*")
    assert stat.S_IMODE(folder.parent.stat().st_mode) == stat.S_IMODE(folder.stat().st_mode) == 0o700
    for above in [*run.temporary.parents, run.temporary]:
        if above.stat().st_uid == os.geteuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o755)  # so that only the run's own folders are in the way
    command = ["/usr/bin/python3", "-c", STRANGER, str(folder), ",".join(map(str, ports))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


@as_root
@pytest.mark.real
@pytest.mark.parametrize("name", RUNS)
def test_another_user_of_the_machine_changes_nothing(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    short = tmp_path_factory.mktemp("run")  # a socket's path has at most 107 bytes
    with commands(short, {name: RUNS[name]}) as under_way:
        run = under_way[name]
        ports = listening(set(run.ranks()) | {run.process.pid})
        assert len(ports) == (3 if name == "native" else 0)  # gloo's; nothing else can be connected to
        come_to(run, ports)
        assert run.process.wait(HANGS) == 0
        measured = json.loads(run.stdout.read_text())
    changes = [word for word in RUNS[name] if "=" in word]
    alone = lockstep.simulate(lockstep.load(run.out.parent / "long.yaml", changes)).metrics
    assert measured["parameters_sha256"] == alone["parameters_sha256"]
    assert not processes(run.process.pid)


CONNECT = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
input()
"""


@as_root
def test_who_is_at_the_other_end_of_a_connection_is_known() -> None:
    peers.check_ends()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for user, fine in ((0, True), (NOBODY, False)):
            command = ["/usr/bin/python3", "-c", CONNECT, str(listener.getsockname()[1]), str(user)]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as other:
                accepted, _ = listener.accept()
                with accepted:
                    if fine:
                        peers.check_ends()
                    else:
                        with pytest.raises(
                            PermissionError, match=f"a process of user {NOBODY} has connected"
                        ):
                            peers.check_ends()
                other.communicate(b"\n")


@as_root
def test_a_folder_that_another_user_has_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = torchruns_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(ScenarioError, match="is not a private folder of this user"):
        torchruns_folder()
    os.chown(folder, 0, 0)
    folder.chmod(0o750)
    with pytest.raises(ScenarioError, match="is not a private folder of this user"):
        torchruns_folder()
    shutil.rmtree(folder)
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    folder.symlink_to(target)
    with pytest.raises(ScenarioError, match="is not a private folder of this user"):
        torchruns_folder()


# ------------------------------------------------------------------ on several hosts

SECRET = bytes(range(32))


def place(folder: Path, secret: bytes = SECRET, run: str = "7") -> Place:
    names = ["hub", "0", "1"]
    return Place(folder, "127.0.0.1", None, keys.Keys(secret, run, names))


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(place(tmp_path), Watchdog(2, None), answers(dist.HashStore(), tmp_path, tmp_path))
    yield hub
    hub.close()


def port_of(endpoint: str) -> tuple[str, int]:
    return "127.0.0.1", int(endpoint.rpartition(":")[2])


def test_strangers_on_the_network_are_refused_and_counted(hub: Hub, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attack(port_of(hub.endpoint))
    for wrong in (place(tmp_path, bytes(32)), place(tmp_path, run="8")):  # another key; another run's
        heartbeat = Heartbeat(1, wrong, hub.endpoint)
        heartbeat._tell({"status": {"done": 5}})
        time.sleep(0.3)
        heartbeat.close()
    with zmq.Context() as context, context.socket(zmq.DEALER) as plain:
        plain.setsockopt(zmq.LINGER, 0)
        plain.connect(hub.endpoint)
        plain.send(b'{"status": {"done": 5}}')
        time.sleep(0.3)
    assert not hub.watchdog.status
    assert until(lambda: hub.refused >= 4, SOON)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KB: no 8 GiB were taken
    ours = Heartbeat(1, place(tmp_path), hub.endpoint)
    ours._tell({"status": {"done": 5}})
    assert until(lambda: 1 in hub.watchdog.status, SOON)
    ours.close()


def test_a_process_of_the_run_cannot_speak_for_another(hub: Hub, tmp_path: Path) -> None:
    ours = place(tmp_path)
    doors = Doors("0", ours)
    forged = doors.connect(zmq.DEALER, "hub", hub.endpoint, b"1")  # says that it is rank 1
    forged.send(b'{"status": {"done": 5}}')
    assert until(lambda: hub.refused, SOON)
    time.sleep(0.5)
    doors.close()
    assert not hub.watchdog.status
    assert hub.refused == 1


def test_a_store_and_files_through_the_hub(hub: Hub, tmp_path: Path) -> None:
    store = RemoteStore(1, place(tmp_path), hub.endpoint)
    assert (store.add("n", 2), store.add("n", 3)) == (2, 5)
    assert store.compare_set("a", "", "b") == b"b"
    store.set("c", b"\x00\xff")
    assert store.get("c") == b"\x00\xff"
    assert store.check(["a", "c"])
    assert not store.check(["d"])
    (tmp_path / "source").write_bytes(os.urandom(9_000_000))
    store.leave("rank-1.records.arrow", tmp_path / "source")
    assert (tmp_path / "rank-1.records.arrow").read_bytes() == (tmp_path / "source").read_bytes()
    for name in ("../x", ".hidden"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lockstep.executor.remote._GONE_S", 0.5)
            with pytest.raises(RuntimeError, match="has not answered"):
                store.leave(name, tmp_path / "source")
    store.close()
    assert not (tmp_path.parent / "x").exists()


def test_messages_between_hosts_are_from_whom_they_say(tmp_path: Path) -> None:
    store, initial = dist.HashStore(), torch.zeros(1000)
    made = [Transport(store, rank, place(tmp_path), initial, [0, 1]) for rank in range(2)]
    header: list[Any] = ["push", 0, 7, 1, 0, 0.5, [], 1.25]
    made[0].send(1, header, torch.ones(1000))
    found, body = made[1].receive(5) or pytest.fail("nothing came")
    assert found == header
    assert torch.equal(body, torch.ones(1000))
    attack(port_of(store.get("address/1").decode()))
    assert until(lambda: made[1].refused, SOON)
    made[0].send(1, header, None)
    assert made[1].receive(5) is not None
    made[0].send(1, [*header[:1], 1, *header[2:]], None)  # rank 0 says that it is rank 1
    with pytest.raises(ValueError, match="no message of a run came in"):
        made[1].receive(5)
    for each in made:
        each.close()


# ------------------------------------------------------------------ sizes, numbers


def test_what_is_too_large_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    store, initial = dist.HashStore(), torch.zeros(1000)
    made = [Transport(store, rank, Place(tmp_path), initial, [0, 1]) for rank in range(2)]
    with pytest.raises(ValueError, match="a message of 4,000,000 bytes; at most 1,064,576"):
        made[0].send(1, ["push", 0, 7, 1, 0, 0.5, [], 1.25], torch.zeros(1_000_000))
    with zmq.Context() as context, context.socket(zmq.PUSH) as large:
        large.setsockopt(zmq.LINGER, 0)
        large.connect(store.get("address/1").decode())
        large.send(bytes(2_000_000))
        assert made[1].receive(0.5) is None
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("numbers", "said"),
    [((1, 3), "a message from rank 0 lost"), ((1, 2, 2), "message 2 from rank 0 came again")],
)
def test_a_message_that_is_lost_or_comes_again_is_an_error(
    tmp_path: Path, numbers: tuple[int, ...], said: str
) -> None:
    store = dist.HashStore()
    made = [Transport(store, rank, Place(tmp_path), torch.zeros(10), [0, 1]) for rank in range(2)]
    for number in numbers:
        made[0].sent[1] = number - 1
        made[0].send(1, ["push", 0, 7, 1, 0, 0.5, [], 1.25], None)
    for _ in numbers[:-1]:
        assert made[1].receive(5) is not None
    with pytest.raises(MessagesLost, match=said):
        made[1].receive(5)
    for each in made:
        each.close()
