"""Cuts are the best there are: against all of them, one by one."""

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.scenarios import ScenarioError
from lockstep.workloads.cutting import cut
from lockstep.workloads.layers import Layer, kept

WHOLE = st.integers(0, 20)


def layer(flops: float, parameters: int = 1, seconds: float | None = None, saved: float = 0) -> Layer:
    half = None if seconds is None else seconds / 2
    return Layer("", parameters, flops, 0.0, 1.0, saved, 0.0, forward_s=half, backward_s=half)


def all_cuts(layers: int, stages: int) -> list[tuple[int, ...]]:
    return [(0, *inner, layers) for inner in combinations(range(1, layers), stages - 1)]


def largest(bounds: Sequence[int], size: Callable[[int, int, int], float]) -> float:
    return max(size(stage, start, stop) for stage, (start, stop) in enumerate(pairwise(bounds)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Layer], int, list[float], list[float]]:
    layers = [
        layer(draw(WHOLE), draw(WHOLE), draw(WHOLE), draw(WHOLE)) for _ in range(draw(st.integers(1, 8)))
    ]
    stages = draw(st.integers(1, len(layers)))
    each = st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=stages, max_size=stages)
    return layers, stages, draw(each), [20 * limit for limit in draw(each)]


@given(case=cases(), by=st.sampled_from(["flops", "parameters", "time", "memory"]), limited=st.booleans())
def test_no_cut_is_better(
    case: tuple[list[Layer], int, list[float], list[float]], by: str, limited: bool
) -> None:
    layers, stages, speeds, limits = case

    def memory(stage: int, start: int, stop: int) -> float:
        return kept(layers[start:stop]) + 2 * (stages - stage)

    def size(stage: int, start: int, stop: int) -> float:
        own = layers[start:stop]
        takes = memory(stage, start, stop)
        if limited and takes > limits[stage]:
            return inf
        return {
            "flops": sum(each.flops for each in own),
            "parameters": sum(each.parameters for each in own),
            "time": sum(each.seconds or 0 for each in own) / speeds[stage],
            "memory": takes / (limits[stage] if limited else 1),
        }[by]

    best = min(largest(bounds, size) for bounds in all_cuts(len(layers), stages))
    given = {"speeds": speeds, "memory": memory, "limits": limits if limited else ()}
    if best == inf:
        with pytest.raises(ScenarioError, match="keeps each of them within") as caught:
            cut(layers, stages, by, **given)  # type: ignore[arg-type]
        assert caught.value.key == "parallelism.cut"
        return
    bounds = cut(layers, stages, by, **given)  # type: ignore[arg-type]
    assert bounds in all_cuts(len(layers), stages)
    assert largest(bounds, size) == best


def test_equal_layers_are_shared_out_evenly() -> None:
    layers = [layer(1)] * 64
    assert cut(layers, 16) == tuple(range(0, 65, 4))
    assert cut(layers, 64) == tuple(range(65))
    assert cut(layers[:5], 3) == (0, 1, 3, 5)  # the last boundaries as early as can be
    assert cut(layers, 1) == (0, 64)


def test_by_work_and_by_parameters() -> None:
    layers = [layer(1, 9), layer(1, 1), layer(9, 1)]
    assert cut(layers, 2, "flops") == (0, 2, 3)
    assert cut(layers, 2, "parameters") == (0, 1, 3)


def test_time_is_measured_or_in_proportion_to_the_work() -> None:
    assert cut([layer(1, seconds=5.0), layer(1, seconds=1.0), layer(9, seconds=1.0)], 2, "time") == (0, 1, 3)
    assert cut([layer(1, seconds=5.0), layer(1, seconds=1.0), layer(9)], 2, "time") == (0, 2, 3)
    layers = [layer(1)] * 9
    assert cut(layers, 2, "time", speeds=[2.0, 1.0]) == (0, 6, 9)
    assert cut(layers, 2, "flops", speeds=[2.0, 1.0]) == (0, 4, 9)  # the work, whoever does it


def test_memory_moves_a_boundary() -> None:
    layers = [layer(1, saved=1)] * 6

    def memory(stage: int, start: int, stop: int) -> float:
        return (stop - start) * (2 - stage)  # the first stage keeps two micro-batches

    assert cut(layers, 2, memory=memory) == (0, 3, 6)
    assert cut(layers, 2, memory=memory, limits=[4.0, 6.0]) == (0, 2, 6)
    assert cut(layers, 2, "memory", memory=memory) == (0, 2, 6)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ([1], "must list 2 layer numbers: the first layer of each piece but the first (3 pieces); not 1"),
        ([2, 1], "must be numbers of layers that rise, from 1 to 3, not [2, 1]"),
        ([0, 1], "must be numbers of layers that rise"),
        ([1, 4], "must be numbers of layers that rise"),
        ([2, 2], "must be numbers of layers that rise"),
    ],
)
def test_a_list_that_is_no_cut(by: list[int], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        cut([layer(1)] * 4, 3, by)
    assert caught.value.key == "parallelism.cut"
    assert caught.value.problem.startswith(said)


def test_a_list_is_taken_as_it_is_if_it_fits() -> None:
    layers = [layer(1, saved=1)] * 4
    assert cut(layers, 3, [1, 2]) == (0, 1, 2, 4)
    with pytest.raises(ScenarioError, match="keeps each of them within the memory of its device"):
        cut(layers, 3, [1, 2], memory=lambda _stage, start, stop: stop - start, limits=[1.0, 1.0, 1.0])


def test_more_stages_than_layers() -> None:
    with pytest.raises(
        ScenarioError, match="must be at most 2, as many as there are layers, not 3"
    ) as caught:
        cut([layer(1)] * 2, 3)
    assert caught.value.key == "parallelism.pipeline"
    tied = Layer("body", 1, 1.0, 2.0, 0.0, 1.0, 0.0, tied="embedding.weight")
    with pytest.raises(ScenarioError, match=r"body cannot be cut, because embedding\.weight is used at two"):
        cut([tied], 2)
