"""Sums over all workers: the right sum, the same bits everywhere, and the closed forms of what they cost."""

from concurrent.futures import ThreadPoolExecutor
from math import ceil, log2
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep.job.node import Node as RunningNode
from lockstep.strategies import STRATEGIES, Collective, Node, Strategy
from lockstep.strategies import all_reduce as module
from lockstep.strategies.bounds import problem
from lockstep.strategies.collectives import (
    ALGORITHMS,
    binomial,
    chosen,
    gloo_ring,
    halving_doubling,
    hierarchical,
    nccl_ring,
    parameter_server,
    recursive_doubling,
    ring,
    two_level,
)
from lockstep.studies.verification import theory
from tests.support.nightly import drawn
from tests.support.scenarios import scenario

B, ALPHA = 1e6, 3e-3  # bytes/s, s
WORKERS = [1, 2, 3, 5, 6, 7, 8]


def sums(
    collective: Collective,
    vectors: list[torch.Tensor],
    hosts: list[int] | None = None,
    late: list[float] | None = None,
    rounds: int = 2,
) -> list[list[torch.Tensor]]:
    """What every worker gets, in each round, from a simulated collective of the workers' vectors."""
    found: list[list[torch.Tensor]] = [[] for _ in vectors]

    async def program(node: Node) -> None:
        if hosts is not None:
            node.hosts = hosts
        for number in range(rounds):
            await node.sleep(late[node.index] if late else 0)
            found[node.index].append(await node.collective(collective, vectors[node.index] * (number + 1)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STRATEGIES, "under-test", Strategy(program))
        lockstep.simulate(
            scenario(
                cluster__workers=len(vectors), cluster__network={"bandwidth": "1 MB/s", "latency": "1 us"},
                workload={"problem": "quadratic"}, strategy="under-test",
            )
        )  # fmt: skip
    return found


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("length", [1, 4, 7, 100])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_everyone_has_the_sum_to_the_same_bits(name: str, workers: int, length: int) -> None:
    """In two rounds, with workers up to a whole round late."""
    generator = torch.Generator().manual_seed(workers)
    vectors = [torch.randn(length, generator=generator) for _ in range(workers)]
    found = sums(ALGORITHMS[name], vectors, late=[1e-4 * (index % 3) for index in range(workers)])
    exact = torch.stack(vectors).double().sum(0)
    for number in range(2):
        assert all(torch.equal(results[number], found[0][number]) for results in found)
        # float32 has 2⁻²⁴ of relative error an addition
        scale = torch.stack(vectors).abs().double().sum(0)
        assert (found[0][number] / (number + 1) - exact).abs().le(scale * workers * 2**-24).all()


@pytest.mark.slow
@given(data=st.data(), workers=st.integers(1, 9), length=st.integers(1, 20))
def test_two_levels_with_any_hosts(data: st.DataObject, workers: int, length: int) -> None:
    hosts = data.draw(st.lists(st.integers(0, 3), min_size=workers, max_size=workers))
    vectors = [torch.arange(length) + 100.0 * index for index in range(workers)]
    for collective in (two_level, hierarchical):
        for results in sums(collective, vectors, hosts):
            assert torch.equal(results[0], torch.stack(vectors).sum(0))


def test_the_vectors_given_are_left_alone() -> None:
    for collective in ALGORITHMS.values():
        vectors = [torch.ones(5) for _ in range(3)]
        sums(collective, vectors)
        assert all(torch.equal(vector, torch.ones(5)) for vector in vectors)


def round_of(algorithm: str, workers: int, latency: float = ALPHA) -> tuple[float, int, int]:
    """Seconds and bytes sent of one all-reduce without any computing, and the bytes of the vector."""
    parameters = 840 * 1024  # divisible by every number of workers used here
    run = lockstep.simulate(
        scenario(
            cluster__workers=workers, workload={"parameters": parameters}, stop={"steps": 3},
            cluster__network={"bandwidth": "1 MB/s", "latency": f"{latency} s"},
            cluster__compute={"time": {"distribution": "constant", "value": "0 s"}},
            strategy={"name": "all-reduce", "algorithm": algorithm},
        )
    )  # fmt: skip
    return run.metrics["duration_s"] / 3, run.metrics["bytes_sent"] // 3, 4 * parameters


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("algorithm", ["ring", "native", "two-level", "hierarchical", "auto"])
def test_time_of_a_ring(algorithm: str, workers: int) -> None:
    """2(p−1)α + 2(p−1)/p·M/B; two levels with one worker a host are a ring, and so is auto's choice."""
    took, sent, m = round_of(algorithm, workers)
    p = workers
    assert took == pytest.approx(2 * (p - 1) * ALPHA + 2 * (p - 1) / p * m / B, rel=1e-9)
    assert sent == 2 * (p - 1) * m


@pytest.mark.parametrize("latency", [0.0, ALPHA, 0.5, 3.0])
@pytest.mark.parametrize("workers", WORKERS)
def test_time_of_a_ring_in_slices(workers: int, latency: float) -> None:
    """All slices one after another, and one latency; or a latency for every four, where these are long.

    A slice leaves after the one before it, and after the fourth before it has got there.
    """
    took, sent, m = round_of("nccl-ring", workers, latency)
    p = workers
    assert took == pytest.approx(theory.nccl_ring(p, m, latency, 1 / B) if p > 1 else 0, rel=1e-6)
    assert sent == 2 * (p - 1) * m


def test_a_ring_in_slices_has_the_bits_of_a_ring() -> None:
    vectors = [torch.randn(1000, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
    assert torch.equal(sums(nccl_ring, vectors)[0][0], sums(ring, vectors)[0][0])


@pytest.mark.parametrize("latency", [0.0, ALPHA, 0.5, 3.0])
@pytest.mark.parametrize("workers", WORKERS)
def test_time_of_a_ring_in_segments(workers: int, latency: float) -> None:
    """All segments one after another, and two latencies for each half of the ring; or, where latencies are
    long, two for every two segments.
    """
    took, sent, m = round_of("gloo-ring", workers, latency)
    p = workers
    assert took == pytest.approx(theory.gloo_ring(p, m, latency, 1 / B) if p > 1 else 0, rel=1e-6)
    assert sent == 2 * (p - 1) * m
    least = 2 * (p - 1) / p * m / B
    assert took >= least + 4 * latency * (p > 1) - 1e-9
    if latency == 3 and p > 2:
        assert took > 1.9 * round_of("nccl-ring", workers, latency)[0]


def gloos_own(vectors: list[torch.Tensor]) -> list[torch.Tensor]:
    """What torch.distributed sums over Gloo, with a thread for each worker."""
    store = dist.HashStore()

    def summed(rank: int) -> torch.Tensor:
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        total = vectors[rank].clone()
        dist.ProcessGroupGloo(store, rank, len(vectors), options).allreduce([total]).wait()
        return total

    with ThreadPoolExecutor(len(vectors)) as threads:
        return list(threads.map(summed, range(len(vectors))))


@pytest.mark.real
@pytest.mark.parametrize("length", [1, 7, 1000, 1_700_001])  # the last: three segments of each chunk
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_a_ring_in_segments_has_gloos_bits(workers: int, length: int) -> None:
    """Three numbers and more have another sum in another order: chunks begin where Gloo's do."""
    vectors = [torch.randn(length, generator=torch.Generator().manual_seed(seed)) for seed in range(workers)]
    (found, *_), (own, *_) = sums(gloo_ring, vectors, rounds=1)[0], gloos_own(vectors)
    assert torch.equal(found, own)


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16])
def test_time_of_halving_doubling(workers: int) -> None:
    """2·lg p·α + 2(p−1)/p·M/B."""
    took, sent, m = round_of("halving-doubling", workers)
    p = workers
    assert took == pytest.approx(2 * log2(p) * ALPHA + 2 * (p - 1) / p * m / B, rel=1e-9)
    assert sent == 2 * (p - 1) * m


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16])
def test_time_of_recursive_doubling(workers: int) -> None:
    """lg p·(α + M/B)."""
    took, sent, m = round_of("recursive-doubling", workers)
    assert took == pytest.approx(log2(workers) * (ALPHA + m / B), rel=1e-9)
    assert sent == workers * log2(workers) * m


@pytest.mark.parametrize("workers", [3, 5, 6, 7])
@pytest.mark.parametrize("algorithm", ["halving-doubling", "recursive-doubling"])
def test_bytes_of_folding(algorithm: str, workers: int) -> None:
    """Other numbers of workers send 2M more for each worker above the largest power of two."""
    power = 2 ** int(log2(workers))
    _, sent, m = round_of(algorithm, workers)
    assert sent == round_of(algorithm, power)[1] + 2 * (workers - power) * m


@pytest.mark.parametrize("workers", [3, 5, 6, 7])
@pytest.mark.parametrize("collective", [halving_doubling, recursive_doubling])
def test_time_of_folding(collective: Collective, workers: int) -> None:
    """2(α + M/B) more than the largest power of two, if nobody else sends while vectors are folded in."""
    power, length, alpha = 2 ** int(log2(workers)), 840, 1e-6  # alpha: of the network in `sums`
    hop = alpha + 4 * length / B
    ends = []

    async def timed(node: Node, vector: torch.Tensor) -> torch.Tensor:
        total = await collective(node, vector)
        ends.append(node.now)
        return total

    vectors = [torch.ones(length)] * workers
    sums(timed, vectors[:power], rounds=1)
    inner = max(ends)
    ends.clear()
    sums(timed, vectors, late=[hop * (workers - power <= i < power) for i in range(workers)], rounds=1)
    assert max(ends) == pytest.approx(inner + 2 * hop, rel=1e-9)


@pytest.mark.parametrize("workers", [*WORKERS, 16])
def test_time_of_a_binomial_tree(workers: int) -> None:
    """2·⌈lg p⌉·(α + M/B): exactly for powers of two, at most for others."""
    took, sent, m = round_of("binomial", workers)
    most = 2 * ceil(log2(workers)) * (ALPHA + m / B)
    assert sent == 2 * (workers - 1) * m
    if log2(workers).is_integer():
        assert took == pytest.approx(most, rel=1e-9)
    else:
        assert took <= most * (1 + 1e-9)


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
def test_time_through_the_owners_of_the_chunks(workers: int) -> None:
    """2α + 2(p−1)/p·M/B."""
    took, sent, m = round_of("parameter-server", workers)
    p = workers
    assert took == pytest.approx(2 * ALPHA + 2 * (p - 1) / p * m / B, rel=1e-9)
    assert sent == 2 * (p - 1) * m


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nobody_beats_the_lower_bound(algorithm: str, workers: int) -> None:
    """2(p−1)/p·M/B, whatever the algorithm."""
    took, _, m = round_of(algorithm, workers, latency=0)
    assert took >= 2 * (workers - 1) / workers * m / B * (1 - 1e-9)


def test_only_first_workers_speak_to_other_hosts() -> None:
    hosts = [0, 0, 0, 1, 1, 2]
    spoken: set[tuple[int, int]] = set()

    send = RunningNode.send

    def spy(self: RunningNode, to: int, kind: str, body: Any = None, **more: Any) -> Any:
        spoken.add((self.rank, to))
        return send(self, to, kind, body, **more)

    with mock.patch.object(RunningNode, "send", spy):
        sums(two_level, [torch.ones(6)] * 6, hosts, rounds=1)
    inside = {(0, 1), (0, 2), (3, 4)}
    assert spoken == inside | {(b, a) for a, b in inside} | {(0, 3), (3, 5), (5, 0)}


def test_between_two_hosts_a_hierarchy_sends_half_of_what_a_ring_of_many_does() -> None:
    """The card's bytes: M each way, and 2(p−1)/p·M; inside the hosts messages are free here."""

    def seconds(algorithm: str) -> float:
        run = lockstep.simulate(
            scenario(
                cluster__workers=16, cluster__workers_per_host=8, cluster__network={"bandwidth": "1 MB/s"},
                workload={"parameters": 160_000}, stop={"steps": 1},
                cluster__compute={"time": {"distribution": "constant", "value": "0 s"}},
                strategy={"name": "all-reduce", "algorithm": algorithm},
            )
        )  # fmt: skip
        return float(run.metrics["duration_s"])

    assert seconds("hierarchical") == pytest.approx(0.64, rel=1e-9)
    assert seconds("ring") == pytest.approx(2 * 15 / 16 * 0.64, rel=1e-9)


def test_auto_chooses_by_size_and_workers() -> None:
    assert chosen(nbytes=9_999, length=2_500, workers=8) is recursive_doubling
    assert chosen(nbytes=10_000, length=2_500, workers=8) is ring
    assert chosen(nbytes=10_000, length=2_500, workers=2_500) is binomial


def test_every_algorithm_can_be_named_in_a_scenario() -> None:
    assert all(problem(name, module.Algorithm) is None for name in ALGORITHMS)
    assert len(module.Algorithm.__args__) == len(ALGORITHMS)
    assert {halving_doubling, parameter_server} < set(ALGORITHMS.values())


@pytest.mark.real
@pytest.mark.parametrize(
    "algorithm", drawn([name for name in ALGORITHMS if name not in ("ring", "native")], one_in=2)
)
def test_three_real_workers_end_with_the_simulated_bits(algorithm: str) -> None:
    """An odd number folds, and has chunks of unequal lengths."""
    config = scenario(
        cluster__workers=3, workload={"problem": "logistic"}, stop={"steps": 3},
        strategy={"name": "all-reduce", "algorithm": algorithm},
        cluster__compute={"time": {"distribution": "constant", "value": "1 ms"}},
    )  # fmt: skip
    measured, predicted = lockstep.run(config), lockstep.simulate(config)
    assert (measured.parameters == predicted.parameters).all()
    assert measured.metrics["bytes_sent"] == predicted.metrics["bytes_sent"]
