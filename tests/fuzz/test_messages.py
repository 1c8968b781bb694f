"""Messages between the processes of a run, with mistakes of all kinds: each is read, or refused at once."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import zmq
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from lockstep.executor.hub import Hub
from lockstep.executor.remote import answers
from lockstep.executor.sockets import Doors, Place
from lockstep.executor.transport import MessagesLost, Transport
from lockstep.executor.watchdog import Watchdog
from tests.support.laws import soon
from tests.support.mutations import contents, documents
from tests.support.nightly import so_many

ALL = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
FRONT = [0, 1, 12, 0, "push", 0, 7, 1, 0, 0.5, [[0, 6, 1], [1, 5, 2]], 1.25]
LARGE = [0, 1, 1 << 16, 1, "parameters", 0, 7, 1, 0, 0.5, [], 1.25]
EMPTY = [0, 1, -1, 0, "stop", 0, 7, 1, 0, 0.5, [], 1.25]
DEEP = b"[" * 100_000


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Transport, Any]]:
    """A process's transport, and a socket to it."""
    folder = tmp_path_factory.mktemp("m")
    transport = Transport(dist.HashStore(), 1, Place(folder), torch.zeros(100_000), [0])
    with zmq.Context() as context, context.socket(zmq.PUSH) as other:
        other.linger = 0
        other.connect(transport.store.get("address/1").decode())
        yield transport, other
    transport.close()


@st.composite
def frames(draw: st.DrawFn) -> list[bytes]:
    """A message's frames, some of it changed."""
    front = draw(st.sampled_from([FRONT, FRONT, LARGE, EMPTY]))
    size = max(0, int(front[2]))  # type: ignore[call-overload]
    body = bytes(size)
    match draw(st.sampled_from(["header", "header", "header", "bytes", "body", "frames", "deep"])):
        case "header":
            front = draw(documents([front], {}))
        case "bytes":
            return [draw(contents(json.dumps(front).encode() + b"\n" + body[:100]))]
        case "body":
            body = draw(st.sampled_from([b"", body[1:], body + b"1", body * 2, b"\n" * 12]))
        case "frames":
            return draw(
                st.lists(
                    st.sampled_from([b"", body, json.dumps(front).encode() + b"\n", DEEP]),
                    min_size=1,
                    max_size=3,
                )
            )
        case _:
            return [DEEP + b"\n"]
    line = json.dumps(front).encode("utf-8", "surrogatepass") + b"\n"
    return [line, body] if len(body) >= 1 << 16 else [line + body]


@pytest.mark.slow
@so_many(60, 1200, suppress_health_check=ALL)
@given(frames())
def test_to_a_process(ours: tuple[Transport, Any], sent: list[bytes]) -> None:
    transport, other = ours
    with soon():
        other.send_multipart(sent)
        for _ in range(len(sent)):
            try:
                found = transport.receive(0.3 if _ else 5)
            except (ValueError, MessagesLost):  # with which the run then ends
                continue
            if found is not None:
                header, body = found
                assert [type(each) for each in header] == [str, int, int, int, int, float, list, float]
                assert body is None or body.numel() * body.element_size() <= transport.most_bytes
        while transport.inbox.poll(0):
            transport.inbox.recv_multipart()
    transport.taken.clear()
    transport.lives.clear()


STATUS = {"done": 3, "waits": [["push", None], [None, 1]], "begun": True, "sent": {"1": 3}, "taken": {"1": 2}}
SAID = [
    {"status": {**STATUS, "looked": True, "longest_s": 0.5, "stood_s": 0.1, "refused": 1, "done_share": 0.5}},
    {"failure": [1.0, "it failed", "Traceback"]},
    {"about": {"host": "a", "number": 1, "pid": 7}},
    {"end": "rank 0 failed", "status": STATUS},
    {"call": ["set", "key"]},
    {"call": ["add", "count", 1]},
    {"call": ["check", "key", "other"]},
    {"call": ["compare_set", "count", "", "1"]},
    {"call": ["file", "rank-0.records.arrow", 0]},
    {"call": ["file", "rank-0.records.arrow", -1]},
]
VALUES = {
    "": {"call": [["get", "key"], ["file", "..", 0], ["file", "", 0], ["nothing"]], "status": [{}, STATUS]}
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, Any]]:
    """Where processes report, and the socket of one."""
    folder = tmp_path_factory.mktemp("h")
    store = dist.HashStore()
    store.set("key", "there")
    found = Hub(Place(folder), Watchdog(2, None), answers(store, folder, folder))
    doors = Doors("0", Place(folder))
    yield found, doors.connect(zmq.DEALER, "hub", found.endpoint, b"0")
    doors.close()
    found.close()


@pytest.mark.slow
@so_many(60, 800, suppress_health_check=ALL)
@given(documents(SAID, VALUES) | st.just(DEEP), st.sampled_from([[b""], [], [b"1234"], [b"", b""]]))
def test_to_where_processes_report(hub: tuple[Hub, Any], said: Any, more: list[bytes]) -> None:
    """What is no report is counted; reports are heard afterwards as before."""
    found, socket = hub
    content = said if isinstance(said, bytes) else json.dumps(said).encode("utf-8", "surrogatepass")
    with soon():
        socket.send_multipart([content, *more])
        socket.send_multipart([json.dumps({"status": STATUS, "about": {"n": 9}}).encode()])
        while found.about.get(0) != {"n": 9}:
            assert socket.poll(5000), "nobody hears any more"
            socket.recv_multipart()
        found.about.clear()
        found.stall()
        found.waited_for()
        assert math.isfinite(found.done_share)
