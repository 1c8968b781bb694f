"""Messages over ZeroMQ: what is sent is what arrives, whatever its size."""

import json
import marshal
import pickle
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
import zmq

from executor.transport import Transport

HEADER = ["push", 0, 7, 1, 0, 0.5, [[0, 6, 1], [1, 5, 2]], 1.25]


@pytest.fixture
def transports() -> Iterator[list[Transport]]:
    store = dist.HashStore()
    made = [Transport(store, rank, "127.0.0.1", torch.float32) for rank in range(2)]
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
        transports[0].send(1, ["word\n", number, *HEADER[2:]], body)
    for number, body in enumerate(bodies):
        header, arrived = transports[1].receive(5) or pytest.fail("nothing came")
        assert header == ["word\n", number, *HEADER[2:]]
        assert arrived is None if body is None else torch.equal(arrived, body)


LARGE = 1 << 20


def front(nbytes: object) -> bytes:
    return f"[{nbytes},false,{json.dumps(HEADER)[1:]}\n".encode()


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"GET / HTTP/1.1\r\n\r\n"],
        [b"\xff\xfe\n"],
        [b"7\n"],
        [b"[]\n"],
        [b'[-1,false,"push",0]\n'],
        [front('"8"') + b"12345678"],
        [front(7) + b"1234567"],  # no whole number of elements
        [front(8) + b"1234567"],
        [front(LARGE)],  # nothing follows
        [front(LARGE), bytes(LARGE - 4)],
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
