"""Collectives of a group, halves of a ring, and collectives that go on while something else is done."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep.strategies import STRATEGIES, Node, Strategy
from lockstep.strategies.collectives import ALGORITHMS, all_gather, reduce_scatter, ring
from lockstep.strategies.node import Group
from lockstep.strategies.parameter_server import shard_of
from tests.support.scenarios import scenario

B, ALPHA = 1e6, 3e-3  # bytes/s, s
Program = Callable[[Node], Coroutine[Any, Any, None]]


def simulated(program: Program, workers: int, per_host: int = 1) -> None:
    """Run a program on a network of B bytes/s and a latency of ALPHA."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STRATEGIES, "under-test", Strategy(program))
        lockstep.simulate(
            scenario(
                cluster__workers=workers, cluster__workers_per_host=per_host,
                cluster__network={"bandwidth": "1 MB/s", "latency": "3 ms"},
                workload={"problem": "quadratic"}, strategy="under-test",
            )
        )  # fmt: skip


def vectors(workers: int, length: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(workers * length)
    return [torch.randn(length, generator=generator) for _ in range(workers)]


@given(st.integers(1, 7), st.integers(0, 40))
def test_halves_of_a_ring(workers: int, length: int) -> None:
    """Each worker's chunk of the sum; end to end they are the sum, whatever its length."""
    given_, found = vectors(workers, length), {}

    async def program(node: Node) -> None:
        chunk = await node.collective(reduce_scatter, given_[node.index])
        found[node.index] = chunk, await node.collective(all_gather, chunk)

    simulated(program, workers)
    total = sum(given_)
    for me, (chunk, everything) in found.items():
        assert torch.allclose(chunk, shard_of(total, me, workers), atol=1e-5)
        assert torch.equal(everything, found[0][1])
        assert torch.equal(shard_of(everything, me, workers), chunk)


def test_two_workers_sum_as_a_ring_does_bit_for_bit() -> None:
    given_, found = vectors(2, 1001), {}

    async def program(node: Node) -> None:
        whole = await node.collective(ring, given_[node.index])
        found[node.index] = (
            shard_of(whole, node.index, 2),
            await node.collective(reduce_scatter, given_[node.index]),
        )

    simulated(program, 2)
    assert all(torch.equal(*pair) for pair in found.values())


@pytest.mark.parametrize("half", [reduce_scatter, all_gather])
def test_a_half_takes_half_of_a_ring(half: Any) -> None:
    """(p−1)·(α + M/(p·B)) of a whole vector of M bytes."""
    workers, took = 4, []

    async def program(node: Node) -> None:
        whole = torch.zeros(25_000)
        given_ = whole if half is reduce_scatter else shard_of(whole, node.index, workers)
        await node.collective(half, given_)
        took.append(node.now)

    simulated(program, workers)
    assert took == pytest.approx([3 * (ALPHA + 100_000 / 4 / B)] * workers, rel=1e-9)


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_a_begun_collective_goes_on_while_another_thing_is_done(algorithm: str) -> None:
    """It takes as long as if it were awaited at once, and comes to the same bits."""
    given_, alone, beside = vectors(4, 1000), {}, {}

    async def awaited(node: Node) -> None:
        alone[node.index] = await node.collective(ALGORITHMS[algorithm], given_[node.index]), node.now

    async def begun(node: Node) -> None:
        later = node.begin_collective(ALGORITHMS[algorithm], given_[node.index])
        await node.sleep(0.001)
        beside[node.index] = await later, node.now

    simulated(awaited, 4, 2)
    simulated(begun, 4, 2)
    for worker, (total, time) in alone.items():
        assert torch.equal(beside[worker][0], total)
        assert beside[worker][1] == pytest.approx(time, rel=1e-9)


def test_several_at_once_are_told_apart() -> None:
    """Two rings of all, begun one after the other and awaited the other way round, and one of each pair."""
    given_, found = vectors(4, 40), {}

    async def program(node: Node) -> None:
        mine = given_[node.index]
        first = node.begin_collective(ring, mine)
        second = node.begin_collective(ring, 2 * mine)
        pair = tuple(node.workers[node.index // 2 * 2 :][:2])
        third = node.begin_collective(ring, mine, Group(pair, (0, 1), 1))
        found[node.index] = await third, await second, await first

    simulated(program, 4)
    total = sum(given_)
    for worker, (pair, second, first) in found.items():
        place = worker // 2 * 2
        assert torch.allclose(pair, given_[place] + given_[place + 1])
        assert torch.allclose(first, total, atol=1e-6)
        assert torch.equal(second, 2 * first)
