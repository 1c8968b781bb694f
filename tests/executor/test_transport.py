"""Messages over ZeroMQ: what is sent is what arrives, whatever its size."""

import json
import marshal
import os
import pickle
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import zmq

from lockstep.executor import bodies, process, signals
from lockstep.executor.sockets import Place
from lockstep.executor.transport import Sent, Transport
from lockstep.job.arithmetic import OnTensors
from lockstep.job.plan import Plan
from lockstep.strategies.multiple import Multiple
from tests.support.commands import HANGS
from tests.support.nodes import at_once
from tests.support.scenarios import scenario

LARGE = 1 << 20
HEADER = ["push", 0, 7, 1, 0, 0.5, [[0, 6, 1], [1, 5, 2]], 1.25]


@pytest.fixture
def transports(tmp_path: Path) -> Iterator[list[Transport]]:
    store, initial = dist.HashStore(), torch.zeros(1_000_001)
    made = [Transport(store, rank, Place(tmp_path), initial, [1 - rank]) for rank in range(2)]
    yield made
    for transport in made:
        transport.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("length", [0, 1, 16_383, 16_384, 65_535, 65_536, 1_000_001])
def test_a_body_arrives_as_it_was_sent(transports: list[Transport], length: int, dtype: torch.dtype) -> None:
    body = torch.arange(length).to(dtype)
    transports[0].send(1, HEADER, body)
    header, arrived = transports[1].receive(5) or pytest.fail("nothing came")
    assert header == HEADER
    assert torch.equal(arrived, body)
    arrived += 1  # it is the receiver's own memory
    assert transports[1].receive(0) is None


def test_a_message_without_a_body_and_the_order_of_several(transports: list[Transport]) -> None:
    bodies = [None, torch.ones(100_000), torch.ones(3), None]
    for number, body in enumerate(bodies):
        transports[0].send(1, ["word\n", 0, number, *HEADER[3:]], body)
    for number, body in enumerate(bodies):
        header, arrived = transports[1].receive(5) or pytest.fail("nothing came")
        assert header == ["word\n", 0, number, *HEADER[3:]]
        assert arrived is None if body is None else torch.equal(arrived, body)


# ------------------------------------------------------------------ large bodies, in memory that both map


def sent(transports: list[Transport], value: float, length: int = 100_000) -> torch.Tensor:
    """A body, after its way."""
    transports[0].send(1, HEADER, torch.full((length,), float(value)))
    _, arrived = transports[1].receive(5) or pytest.fail("nothing came")
    assert arrived is not None
    return arrived


def pieces(transport: Transport) -> int:
    assert transport._lent is not None
    return len(transport._lent._pieces.get(1, []))


def test_memory_of_a_body_that_nobody_holds_any_more_is_used_again(transports: list[Transport]) -> None:
    for value in range(5):
        part = sent(transports, value)[7:9]
        assert part.tolist() == [value, value]
        del part
    assert pieces(transports[0]) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_sum_that_is_made_to_be_sent_is_not_copied(
    transports: list[Transport], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = OnTensors(torch.zeros(100_000, dtype=dtype), transports[0].room)
    one, other = torch.rand(100_000).to(dtype), torch.rand(100_000).to(dtype)
    total = there.add(there.to_send(one), Multiple(-0.3, other))
    assert torch.equal(total, one + Multiple(-0.3, other))
    for each in transports:
        monkeypatch.setattr(each, "dtype", dtype)
    transports[0].send(1, HEADER, total)
    _, arrived = transports[1].receive(5) or pytest.fail("nothing came")
    assert arrived is not None
    assert torch.equal(arrived, total)
    total[5] = 8
    assert arrived[5] == 8
    assert pieces(transports[0]) == 0
    assert transports[0].room(one[:100]) is None  # little is cheaper to copy


def test_bodies_that_are_held_keep_their_values(transports: list[Transport]) -> None:
    held = [sent(transports, value)[-3:] for value in range(5)]
    assert [each.tolist() for each in held] == [[value] * 3 for value in range(5)]
    assert pieces(transports[0]) == 5
    sent(transports, 9.0, length=50_000)  # fits into a larger piece, once one is free
    assert pieces(transports[0]) == 6
    del held
    sent(transports, 9.0, length=50_000)
    assert pieces(transports[0]) == 6


def test_bodies_beyond_what_one_receiver_may_hold_are_sent(
    transports: list[Transport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_MOST", 2)
    held = [sent(transports, value) for value in range(4)]
    assert [each[0].item() for each in held] == [0, 1, 2, 3]
    assert pieces(transports[0]) == 2


def test_memory_of_bodies_has_no_name_and_goes_with_its_owners(transports: list[Transport]) -> None:
    arrived = sent(transports, 3.0)
    assert transports[0]._lent is not None
    ((piece,),) = transports[0]._lent._pieces.values()
    assert os.readlink(f"/proc/self/fd/{piece.file}") == "/memfd:lockstep-body-0 (deleted)"
    transports[0].close()
    assert arrived[-1] == 3  # the reader's as long as it reads
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(piece.file)


def test_a_body_that_is_gone_with_its_sender_is_lost_with_what_comes_after_it(
    transports: list[Transport], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    monkeypatch.setattr(transports[0]._lent, "lend", lambda to, data: (dead.pid, 3, 0, 0))
    transports[0].send(1, HEADER, torch.ones(100_000))
    assert transports[1].receive(5) is None
    assert transports[1].taken[0] == 1
    monkeypatch.undo()
    transports[0].send(1, HEADER, torch.ones(4))  # of the same sender: else there would be a gap
    assert transports[1].receive(5) is None
    transports[0].begin_anew(1)
    assert sent(transports, 2.0)[0] == 2


@pytest.mark.parametrize("other", [lambda: os.open(os.devnull, os.O_RDONLY), lambda: socket.socket().detach(),
                                   lambda: os.memfd_create("lockstep-body-1")])  # fmt: skip
def test_a_body_whose_sender_has_begun_anew_is_lost_whatever_has_its_descriptor(
    transports: list[Transport], other: Callable[[], int]
) -> None:
    transports[0].send(1, HEADER, torch.ones(100_000))
    assert transports[0]._lent is not None
    ((piece,),) = transports[0]._lent._pieces.values()
    taken = other()
    os.dup2(taken, piece.file)
    os.close(taken)
    assert transports[1].receive(5) is None
    assert transports[1].taken[0] == 1


def test_what_waits_for_the_last_byte_of_a_message_hears_news() -> None:
    """As a worker does whose server is gone, and will read no more of it."""

    class News(Exception):
        pass

    def look() -> None:
        raise News

    with zmq.Context() as context, context.socket(zmq.PUSH) as sender:
        sender.linger = 0
        sender.connect("tcp://127.0.0.1:9")  # nobody is there
        sent = Sent(sender.send(bytes(LARGE), copy=False, track=True))
        sent.look = look
        with pytest.raises(News):
            at_once(sent)


def front(nbytes: object) -> bytes:
    return f"[0,1,{nbytes},false,{json.dumps(HEADER)[1:]}\n".encode()


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"GET / HTTP/1.1\r\n\r\n"],
        [b"\xff\xfe\n"],
        [b"7\n"],
        [b"[]\n"],
        [b'[0,1,-1,false,"push",0]\n'],
        [front(-1).replace(b'"push", 0', b'"push", 1')],  # from whom nothing can come
        [front(-1) + b"12"],
        [front('"8"') + b"12345678"],
        [front(7) + b"1234567"],  # no whole number of elements
        [front(8) + b"1234567"],
        [front(LARGE)],  # nothing follows
        [front(LARGE), bytes(LARGE - 4)],
        [front(LARGE) + b"[1,"],
        [front(LARGE) + b'[1,"2"]'],
        [marshal.dumps((("push", 0), False, b"1234"))],
        [pickle.dumps(print)],
    ],
)
def test_what_is_no_message_is_an_error_at_once(transports: list[Transport], frames: list[bytes]) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.connect(transports[1].store.get("address/1").decode())
        stranger.send_multipart(frames)
        with pytest.raises(ValueError, match=r"no message of a run came in, but b.* bytes: who else sends"):
            transports[1].receive(5)


# ---------------------------------------------------------------------- connections, before the start


def test_connecting_waits_until_the_others_have_connected(transports: list[Transport]) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(transports[0].connect, [1])
        with pytest.raises(TimeoutError):
            first.result(timeout=0.2)
        transports[1].connect([0])
        first.result(timeout=HANGS)
    assert all(each.receive(0) is None for each in transports)  # nothing that is not for the node
    assert all(each.sent.total() == 0 for each in transports)


def test_a_process_that_waits_for_connections_can_be_told_to_end(transports: list[Transport]) -> None:
    with signals.handled(signals.terminate, *signals.ENDING):
        Timer(1.0, os.kill, [os.getpid(), signal.SIGTERM]).start()
        with pytest.raises(signals.Terminated):
            transports[0].connect([1])


def test_a_connection_that_does_not_come_is_told(
    transports: list[Transport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.executor.transport._CONNECT_S", 0.0)
    with pytest.raises(TimeoutError, match=r"no connection from rank 1 .*: does all TCP pass"):
        transports[0].connect([1])


def test_workers_of_a_large_run_are_not_connected_each_with_each() -> None:
    most = process._MOST_CONNECTED
    few, many = (Plan.of(scenario(strategy="gossip", cluster__workers=n)) for n in (most, most + 1))
    assert len(process._connected(few, 0)) == most - 1
    assert process._connected(many, 0) == []


def control_of(folder: Path) -> process.Control:
    """One for all processes, which report to nobody."""
    heartbeat: Any = SimpleNamespace()
    return process.Control(
        dist.HashStore(), heartbeat, Place(folder), lambda name, file: None, folder, folder
    )


class _Begun(BaseException):
    """The clock would start now."""


TREE = {"cluster__workers": 4, "cluster__servers": {"hierarchy": {"groups": 2}}}
PEERS: list[tuple[dict[str, Any], Sequence[set[int]]]] = [
    ({"cluster__workers": 2, "cluster__servers": 2}, [{2, 3}, {2, 3}, {0, 1}, {0, 1}]),
    (TREE, [{5}, {5}, {6}, {6}, {5, 6}, {0, 1, 4}, {2, 3, 4}]),
    ({"strategy": "d-psgd", "cluster__workers": 3}, [{1, 2}, {0, 2}, {0, 1}]),
    ({"strategy": "hogwild", "cluster__workers": 2, "cluster__workers_per_host": 2}, [set(), set()]),
]


@pytest.mark.parametrize(("changes", "peers"), PEERS, ids=["servers", "tree", "peers", "shared memory"])
def test_all_connections_are_there_when_the_clock_starts(
    changes: dict[str, Any], peers: Sequence[set[int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The processes of a run, as threads of this one."""
    control, made = control_of(tmp_path), {}

    class Seen(Transport):
        def __init__(self, store: dist.Store, rank: int, *given: Any) -> None:
            super().__init__(store, rank, *given)
            made[rank] = self

    def begin(*_: Any, **__: Any) -> float:
        raise _Begun

    monkeypatch.setattr(process, "Transport", Seen)
    monkeypatch.setattr(process, "_start_together", begin)
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(process, "keep_freed_memory", lambda: None)
    plan = Plan.of(scenario(**{"strategy": "synchronous", "workload__parameters": 10, **changes}))
    with ThreadPoolExecutor(len(peers)) as pool:
        running = [pool.submit(process.participate, plan, r, control) for r in range(len(peers))]
        assert all(isinstance(each.exception(timeout=HANGS), _Begun) for each in running)
    assert [set(made[rank]._peers) for rank in range(len(peers))] == peers
    for each in made.values():
        each.close()
