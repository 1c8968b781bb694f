"""Graphs over the workers: connected, with weights that average, parted in two, given by a scenario."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import lockstep
from lockstep.scenarios import ScenarioError
from lockstep.schema import json_schema
from lockstep.strategies.bounds import Graph, problem
from lockstep.strategies.graphs import NAMES, bipartite, distances, exchange, mismatch, neighbours, weights
from tests.support.scenarios import scenario

WORKERS = st.integers(1, 40)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Any, int]:
    """Any of the named graphs, or a random tree and some edges more."""
    workers = draw(WORKERS)
    if draw(st.booleans()):
        return draw(st.sampled_from(NAMES)), workers
    edges = [[draw(st.integers(0, rank - 1)), rank] for rank in range(1, workers)]
    ranks = st.integers(0, workers - 1)
    return edges + draw(st.lists(st.tuples(ranks, ranks).filter(lambda e: e[0] != e[1]), max_size=9)), workers


@given(graphs())
def test_a_graph_is_undirected_and_connects_all_workers(case: tuple[Any, int]) -> None:
    links = neighbours(*case)
    assert None not in distances(links)
    for rank, others in enumerate(links):
        assert rank not in others
        assert list(others) == sorted(set(others))
        assert all(rank in links[other] for other in others)


@pytest.mark.slow
@given(graphs())
def test_weights_are_symmetric_and_doubly_stochastic(case: tuple[Any, int]) -> None:
    rows = [weights(*case, rank) for rank in range(case[1])]
    for rank, (row, others) in enumerate(zip(rows, neighbours(*case), strict=True)):
        assert list(row) == sorted({*others, rank})
        assert sum(row.values()) == 1  # exactly: they are fractions; symmetric, so columns too
        assert all(weight >= 0 and rows[other][rank] == weight for other, weight in row.items())
        assert row[rank] > 0 or len(row) == 1


@given(WORKERS)
def test_the_complete_graph_averages_at_once(workers: int) -> None:
    assert set(weights("complete", workers, 0).values()) == {Fraction(1, workers)}


@pytest.mark.parametrize(
    ("graph", "workers", "degree"),
    [("ring", 9, 2), ("torus", 12, 4), ("torus", 7, 2), ("exponential", 8, 5), ("exponential", 9, 6),
     ("complete", 5, 4), ("ring", 2, 1), ("torus", 4, 2)],
)  # fmt: skip
def test_how_many_neighbours_a_worker_has(graph: str, workers: int, degree: int) -> None:
    assert {len(others) for others in neighbours(graph, workers)} == {degree}


@given(graphs())
def test_two_sides_stay_connected(case: tuple[Any, int]) -> None:
    (links, side), whole = bipartite(*case), neighbours(*case)
    assert side[0]
    assert None not in distances(links)
    for rank, others in enumerate(links):
        assert set(others) <= set(whole[rank])
        assert all(side[other] != side[rank] for other in others)


@pytest.mark.parametrize(
    ("graph", "workers", "kept"),
    [("ring", 8, 8), ("ring", 7, 6), ("torus", 16, 32), ("complete", 6, 9), ([[0, 2], [2, 1]], 3, 2)],
)
def test_two_sides_keep_what_edges_they_can(graph: Any, workers: int, kept: int) -> None:
    links, _ = bipartite(graph, workers)
    assert sum(map(len, links)) == 2 * kept


@pytest.mark.parametrize("power", [1, 2, 3, 4])
def test_one_peer_at_a_time_averages_over_all_after_lg_n_steps(power: int) -> None:
    n = 2**power
    shares = [[float(rank == origin) for origin in range(n)] for rank in range(n)]
    for step in range(power):
        _, heard = exchange("exponential", n, step)
        shares = [
            [(a + b) / 2 for a, b in zip(shares[r], shares[heard[r][0]], strict=True)] for r in range(n)
        ]
    assert shares == [[1 / n] * n] * n


@pytest.mark.parametrize("graph", [*NAMES, [[0, 1], [1, 2], [1, 3], [3, 4], [4, 5]]], ids=str)
def test_push_sum_over_any_graph_comes_to_the_mean(graph: Any) -> None:
    """x/w of everyone, though w differs where some hear from several; the sums of x and of w stay."""
    n = 6
    x, w = list(map(float, range(n))), [1.0] * n
    for step in range(200):
        to, heard = exchange(graph, n, step)
        assert all(rank in heard[other] for rank, other in enumerate(to))
        assert sum(map(len, heard)) == n
        x, w = ([v[r] / 2 + sum(v[o] / 2 for o in heard[r]) for r in range(n)] for v in (x, w))
    assert [a / b for a, b in zip(x, w, strict=True)] == pytest.approx([2.5] * n)
    assert sum(w) == pytest.approx(n)


# ------------------------------------------------------------------ given in a scenario


@pytest.mark.parametrize("graph", [*NAMES, [[0, 1], [1, 2]], ((0, 3),), []])
def test_valid_graphs(graph: Any) -> None:
    assert problem(graph, Graph) is None
    if not isinstance(graph, tuple):
        document = scenario(strategy={"name": "d-psgd", "graph": graph}).model_dump(include={"strategy"}) | {
            "name": "x"
        }
        schema = json_schema()
        strategies = Draft202012Validator(schema["$defs"]["Strategy"] | {"$defs": schema["$defs"]})
        strategies.validate(document["strategy"])


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("star", r"'star' is not one of ring, torus, exponential, complete, or edges such as \[\[0, 1\]"),
        (7, "7 is not a pair of different workers; valid are ring, "),
        ([0, 1], "0 is not a pair"),
        ([[0, 1], [1, 1]], r"\[1, 1\] is not a pair"),
        ([[0, 1, 2]], r"\[0, 1, 2\] is not a pair"),
        ([[0, -1]], r"\[0, -1\] is not a pair"),
        ([[0, True]], r"\[0, True\] is not a pair"),
        ([[0, 1.0]], r"\[0, 1.0\] is not a pair"),
        ([[0, 1], [1, 9]], r"\[1, 9\]: there is no worker 9; they are 0 to 3"),
        ([[0, 1], [3, 2]], "worker 2 cannot be reached from worker 0; add the edges that connect all"),
        ([], "worker 1 cannot be reached"),
    ],
)
def test_a_graph_that_is_wrong_is_told_at_its_line(tmp_path: Path, graph: Any, message: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(
        "cluster: {workers: 4, compute: {time: {distribution: constant, value: 1 ms}}}\n"
        "workload: {parameters: 10}\nstop: {steps: 1}\n"
        f"strategy:\n  name: ad-psgd\n  graph: {str(graph).replace('True', 'true')}\n"
    )
    with pytest.raises(ScenarioError, match=f"file.yaml:6: strategy.graph: {message}"):
        lockstep.load(file)


def test_edges_need_not_be_told_twice() -> None:
    assert neighbours([[0, 1], [1, 0], [1, 2]], 3) == ((1,), (0, 2), (1,))
    assert mismatch([[0, 1], [1, 0]], 2) is None
