"""Messages over ZeroMQ: what is sent is what arrives, whatever its size."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from executor.transport import Transport

HEADER = ("push", 0, 7, 1, 0, 0.5, ((0, 6, 1), (1, 5, 2)), 1.25)


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
        transports[0].send(1, ("word", number), body)
    for number, body in enumerate(bodies):
        header, arrived = transports[1].receive(5) or pytest.fail("nothing came")
        assert header == ("word", number)
        assert arrived is None if body is None else torch.equal(arrived, body)
