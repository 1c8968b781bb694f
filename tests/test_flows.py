"""The fast sharing of links over time against a plain one that solves everything at every change."""

import pytest
import simpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.flows import Flows, Link
from simulator.max_min import max_min

Sent = tuple[float, tuple[int, ...], int]  # at, links, bytes


def plainly(sent: list[Sent], capacity: list[float]) -> list[float]:
    """When each flow ends: between two changes rates stand still, and at every change all are solved."""
    left = {number: float(size) for number, (_, _, size) in enumerate(sent)}
    ends: dict[int, float] = {}
    now = 0.0
    while left:
        active = [number for number in left if sent[number][0] <= now]
        rates = max_min({n: sent[n][1] for n in active}, dict(enumerate(capacity)))
        coming = min((sent[n][0] for n in left if sent[n][0] > now), default=float("inf"))
        until = min([now + left[n] / rates[n][0] for n in active] + [coming])
        for number in active:
            left[number] -= rates[number][0] * (until - now)
            if left[number] <= 1e-13 * sent[number][2] + rates[number][0] * until * 4e-16:
                ends[number] = until
                del left[number]
        now = until
    return [ends[number] for number in range(len(sent))]


def fast(sent: list[Sent], capacity: list[float]) -> list[float]:
    environment = simpy.Environment()
    flows, ends = Flows(environment), {}
    links = [Link(str(number), rate) for number, rate in enumerate(capacity)]

    def run():
        for number, (at, path, size) in sorted(enumerate(sent), key=lambda item: item[1][0]):
            yield environment.timeout(max(0.0, at - environment.now))
            flows.start(
                tuple(links[link] for link in path),
                size,
                lambda number=number: ends.setdefault(number, environment.now),
            )

    environment.process(run())
    environment.run()
    assert all(not link.flows and link.count == 0 for link in links)
    return [ends[number] for number in range(len(sent))]


@st.composite
def anything(draw: st.DrawFn) -> tuple[list[Sent], list[float]]:
    """Random paths over random links."""
    count = draw(st.integers(1, 6))
    capacity = draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 10.0]), min_size=count, max_size=count))
    path = st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True).map(tuple)
    # instants on a grid meet; those off it do not
    at = st.one_of(st.integers(0, 8).map(float), st.floats(0, 8))
    return draw(st.lists(st.tuples(at, path, st.integers(1, 20)), min_size=1, max_size=20)), capacity


@st.composite
def stars(draw: st.DrawFn) -> tuple[list[Sent], list[float]]:
    """Workers that push to servers: the up-links, then the servers' down-links; some cards are slow."""
    workers, servers = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    cards = st.sampled_from([10.0, 10.0, 10.0, 1.0, 40.0])
    capacity = [draw(cards) for _ in range(workers + servers)]
    push = st.tuples(
        st.one_of(st.integers(0, 5).map(float), st.floats(0, 5)),
        st.tuples(st.integers(0, workers - 1), st.integers(workers, workers + servers - 1)),
        st.sampled_from([5, 20, 21]),
    )
    return draw(st.lists(push, min_size=1, max_size=30)), capacity


# Once wrong: a link that held nobody back, but would have if its flows had shared it equally.
ONCE_WRONG = [(3, (0,)), (7, (1,)), (13, (2,)), (7, (0, 1)), (10, (2, 0)), (1, (0, 1)), (2, (0, 1, 2))]


@settings(max_examples=300, deadline=None)
@given(st.one_of(anything(), stars()))
@example(([(0.0, path, size) for size, path in ONCE_WRONG] + [(8.0, (0, 1), 1)], [3.0, 2.0, 3.0]))
def test_flows_end_when_they_should(load: tuple[list[Sent], list[float]]) -> None:
    sent, capacity = load
    assert fast(sent, capacity) == pytest.approx(plainly(sent, capacity), rel=1e-9, abs=1e-9)


def test_a_long_busy_link_stays_exact() -> None:
    """A link that is never idle for 20,000 flows: its clock grows, and its error must not."""
    sent = [(number * 0.9, (0,), 100) for number in range(20_000)]
    assert fast(sent, [100.0])[-1] == pytest.approx(20_000, rel=1e-9)
