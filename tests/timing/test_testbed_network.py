"""The testbed's network by the clock: against the fluid model, and real runs against their predictions."""

import json
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import lockstep
from lockstep.executor.shaping import DATA, FRAME
from lockstep.executor.testbed import Testbed
from lockstep.scenarios import Cluster, dump
from tests.support.command_line import COMMAND, of_the_run
from tests.support.commands import HANGS, SLOWNESS
from tests.support.delivery import Sends, arrivals
from tests.support.pace import slowness, undisturbed
from tests.support.scenarios import scenario
from tests.support.testbed import NETWORK, SHAPES, cluster, hosts_of, needs_testbed

NEAR = 0.05  # headers are in the expectation; acknowledgements (2%), start-up and a busy machine are not


def connection(bed: Testbed, source: int, target: int) -> tuple[socket.socket, socket.socket]:
    """A TCP connection between the hosts of two ranks: the sending end and the receiving one."""
    here, there = bed.seat(source), bed.seat(target)
    assert here.namespace
    assert there.namespace
    with there.namespace.run(socket.create_server, (there.address, 0)) as listener:
        sender = here.namespace.run(socket.create_connection, listener.getsockname())
        return sender, listener.accept()[0]


def measured(sends: Sends, described: Cluster) -> list[float]:
    """When each message arrives that is sent as (time, sender, receiver, bytes), on a testbed."""

    def arrival(at: float, ends: tuple[socket.socket, socket.socket], nbytes: int) -> float:
        def send() -> None:
            time.sleep(max(0.0, zero + at - time.monotonic()))
            ends[0].sendall(bytes(nbytes))

        with ThreadPoolExecutor(1) as sending, ends[0], ends[1]:
            sent = sending.submit(send)
            left = nbytes
            while left:
                left -= len(ends[1].recv(min(left, 1 << 18)))
            sent.result()
            return time.monotonic() - zero

    with Testbed(described, hosts_of(described)) as bed:
        ends = [connection(bed, source, target) for _, source, target, _ in sends]
        with ThreadPoolExecutor(len(sends)) as pool:
            zero = time.monotonic() + 0.1 * SLOWNESS
            times = [
                pool.submit(arrival, at, pair, nbytes)
                for (at, _, _, nbytes), pair in zip(sends, ends, strict=True)
            ]
            found = [arrived.result(HANGS) for arrived in times]
        assert bed.warnings() == []  # in particular, no frame was lost
        return found


MB = 1_000_000
S0, S1 = 4, 5  # the ranks of the two servers
TRAFFIC: dict[str, tuple[str, Sends]] = {
    "fan-in": ("star", [(0, 0, S0, MB), (0, 1, S0, MB)]),
    "fan-out": ("star", [(0, S0, worker, MB) for worker in range(3)]),
    "a late one has its share": ("star", [(0, 0, S0, 2 * MB), (0.1, 1, S0, MB // 2)]),
    "a third takes what two leave": ("star", [(0, 0, S0, MB), (0, 0, 1, MB), (0, 2, S0, 2 * MB)]),
    "both ways": ("star", [(0, 0, 1, 2 * MB), (0, 1, 0, 2 * MB)]),
    "all to all": ("star", [(0, a, b, MB) for a in range(3) for b in range(3) if a != b]),
    "a fast server": ("cards", [(0, worker, S0, MB) for worker in (0, 2, 3)]),
    "a slow card": ("cards", [(0, 1, S0, MB // 2), (0, 0, S0, MB), (0, S0, 1, MB // 2)]),
    "between racks": ("racks", [(0, 0, 2, MB), (0, 1, 3, MB), (0, 2, 3, 2 * MB)]),
    "on spines": ("fat tree", [(0, 0, 2, MB // 2), (0, 1, 2, MB // 2), (0, 1, 3, MB // 2)]),
    "between sites": ("sites", [(0, 0, 3, MB // 2), (0, 0, 1, MB // 2), (0, 2, 0, MB)]),
}


@pytest.mark.alone
@needs_testbed
@pytest.mark.parametrize("name", TRAFFIC)
def test_messages_take_the_time_that_the_fluid_model_says(name: str) -> None:
    shape, sends = TRAFFIC[name]
    slow = slowness()
    sends = [(at * slow, sender, receiver, int(nbytes * slow)) for at, sender, receiver, nbytes in sends]
    changes, network = SHAPES[shape]
    network = {**NETWORK, **network}
    expected = arrivals(sends, cluster={"workers": 4, **changes}, **network, goodput=DATA / FRAME)
    near = pytest.approx(expected, rel=NEAR)
    assert (
        undisturbed(lambda: measured(sends, cluster(changes, network)), lambda found: found == near) == near
    )


# ------------------------------------------------------------------ real runs


def error(both: tuple[lockstep.Result, lockstep.Result]) -> float:
    """How far a prediction was off; the run had no warnings of its own."""
    predicted, real = (result.metrics for result in both)
    assert of_the_run(real["warnings"]) == []
    return abs(predicted["throughput"] / real["throughput"] - 1)


def slow(strategy: str | dict[str, str], workers: int, parameters: int) -> lockstep.Scenario:
    """Rounds of more than a second on the network: what the processors need beside is little."""
    rate = f"{20 / slowness():.3f} Mbit/s"
    return scenario(
        cluster__workers=workers, cluster__network={"bandwidth": rate}, strategy=strategy,
        workload={"parameters": parameters}, stop={"steps": 2},
    )  # fmt: skip


@pytest.mark.real
@pytest.mark.alone
@needs_testbed
def test_a_barriers_fan_in_and_fan_out_are_predicted() -> None:
    once = partial(lockstep.validate, slow("synchronous", 2, 250_000), testbed=True)
    assert error(undisturbed(once, lambda both: error(both) < NEAR)) < NEAR


@pytest.mark.real
@pytest.mark.alone
@needs_testbed
def test_the_command_predicts_an_all_reduce_of_gloos(tmp_path: Path) -> None:
    file, out = tmp_path / "scenario.yaml", tmp_path / "out"
    file.write_text(dump(slow({"name": "all-reduce", "algorithm": "native"}, 3, 500_000)))
    command = [*COMMAND, "validate", str(file), "--testbed", "--quiet", "--out", str(out)]

    def once() -> float:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
        assert (done.returncode, of_the_run(done.stderr.splitlines())) == (0, [])
        assert "Predicting for the scenario's network, with a goodput of 0.956" in done.stdout
        (point,) = json.loads((out / "validation.json").read_text())["points"]
        return abs(point["error"]["throughput"])

    assert undisturbed(once, lambda error: error < NEAR) < NEAR
