"""The fast sharing of links over time against a plain one that solves everything at every change."""

from dataclasses import dataclass, field
from math import inf

import pytest
import simpy
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lockstep.simulator import kernel
from lockstep.simulator.bucket import Bucket
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Link
from lockstep.simulator.max_min import max_min
from lockstep.strategies.resource import ResourceId
from tests.support import looped
from tests.support.nightly import examples

Sent = tuple[float, tuple[int, ...], float]  # at, links, bytes


@dataclass
class Load:
    """What is asked of some links: flows, by their number, and what happens to flows and links later."""

    sent: list[Sent]
    capacity: list[float]
    buckets: dict[int, Bucket] = field(default_factory=dict)
    cancelled: dict[int, float] = field(default_factory=dict)  # after how many seconds
    changes: list[tuple[float, int, float]] = field(default_factory=list)  # at, link, capacity

    def events(self) -> list[tuple[float, str, tuple]]:
        starts = [(at, "start", (number,)) for number, (at, _, _) in enumerate(self.sent)]
        ends = [
            (self.sent[number][0] + after, "cancel", (number,)) for number, after in self.cancelled.items()
        ]
        changes = [(at, "change", (link, capacity)) for at, link, capacity in self.changes]
        return sorted(starts + ends + changes, key=lambda event: event[0])


@dataclass
class Outcome:
    ends: dict[int, float] = field(default_factory=dict)
    carried: list[list[float]] = field(default_factory=list)  # of every link at every event, and at the end


def plainly(load: Load) -> Outcome:
    """Between two changes rates stand still, and at every change all are solved."""
    found, now = Outcome(), 0.0
    events, left = load.events(), dict[int, float]()
    capacity = list(load.capacity)
    tokens = {link: bucket.size for link, bucket in load.buckets.items()}
    carried = [0.0] * len(capacity)
    while left or events:
        possible = {
            link: load.buckets[link].line_rate if tokens.get(link, 0.0) > 1e-11 else rate
            for link, rate in enumerate(capacity)
        }
        rates = {n: rate for n, (rate, _) in max_min({n: load.sent[n][1] for n in left}, possible).items()}
        used = [sum(rates[n] for n in left if link in load.sent[n][1]) for link in range(len(capacity))]
        empty = [now + tokens[m] / (used[m] - capacity[m]) for m in tokens if used[m] > capacity[m] + 1e-12]
        coming = events[0][0] if events else inf
        until = min([now + left[n] / rates[n] for n in left] + empty + [coming])
        if until == inf:
            break  # only endless flows
        for link, rate in enumerate(used):
            carried[link] += rate * (until - now)
            if link in tokens:
                more = tokens[link] + (capacity[link] - rate) * (until - now)
                tokens[link] = min(load.buckets[link].size, max(0.0, more))
        for number in list(left):
            left[number] -= rates[number] * (until - now)
            if left[number] <= 1e-13 * min(load.sent[number][2], 1e9) + rates[number] * until * 4e-16:
                found.ends[number] = until
                del left[number]
        now = until
        while events and events[0][0] <= now:
            _, what, what_of = events.pop(0)
            found.carried.append(list(carried))
            if what == "start":
                left[what_of[0]] = load.sent[what_of[0]][2]
            elif what == "cancel":
                assume(abs(found.ends.get(what_of[0], inf) - now) > 1e-9)  # which is first would be chance
                left.pop(what_of[0], None)
            else:
                capacity[what_of[0]] = what_of[1]
    found.carried.append(carried)
    return found


def fast(load: Load) -> Outcome:
    environment = simpy.Environment()
    flows, found = Flows(environment), Outcome()
    links = [
        Link(ResourceId("other", "link", n), rate, load.buckets.get(n))
        for n, rate in enumerate(load.capacity)
    ]
    started = {}

    def run():
        for at, what, what_of in load.events():
            yield environment.timeout(max(0.0, at - environment.now))
            found.carried.append([flows.carried(link) for link in links])
            if what == "start":
                (number,) = what_of
                _, path, size = load.sent[number]
                started[number] = flows.start(
                    tuple(links[link] for link in path),
                    size,
                    lambda number=number: found.ends.setdefault(number, environment.now),
                )
            elif what == "cancel":
                flows.cancel(started[what_of[0]])
            else:
                flows.set_capacity(links[what_of[0]], what_of[1])

    environment.process(run())
    environment.run()
    endless = {number for number in started if load.sent[number][2] == inf} - set(load.cancelled)
    for n, link in enumerate(links):
        assert len(link.flows) == sum(n in load.sent[number][1] for number in endless)
        if not link.flows:
            assert link.count == 0
    found.carried.append([flows.carried(link) for link in links])
    return found


class InTurn:
    """Every other part of the network is solved plainly, whatever its size."""

    turns = 0

    def __mul__(self, links: int) -> float:
        self.turns += 1
        return inf if self.turns % 2 else 0


def bits(
    load: Load, few: float | InTurn, compiled: bool = False
) -> tuple[dict[int, float], list[list[float]]]:
    """What happens if parts with fewer flows a link are solved plainly, the first apart all by the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockstep.simulator.solving._FEW", few)
        patch.setattr("lockstep.simulator.solving._FEWER", 0 if isinstance(few, InTurn) else few)
        patch.setattr("lockstep.simulator.solving._MUCH", 0 if compiled else inf)
        found = fast(load)
    return found.ends, found.carried


def assert_same(load: Load) -> None:
    expected = plainly(load)
    found = fast(load)
    assert found.ends == pytest.approx(expected.ends, rel=1e-9, abs=1e-9)
    if any(size == inf for _, _, size in load.sent):
        # the last thing that happens need not be the same empty event in both
        found.carried.pop()
        expected.carried.pop()
    for one, other in zip(found.carried, expected.carried, strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-8)


# instants on a grid meet; those off it do not
INSTANTS = st.one_of(st.integers(0, 8).map(float), st.floats(0, 8))
CAPACITIES = st.sampled_from([1.0, 2.0, 3.0, 10.0])


@st.composite
def anything(draw: st.DrawFn) -> Load:
    """Random paths over random links."""
    count = draw(st.integers(1, 6))
    capacity = draw(st.lists(CAPACITIES, min_size=count, max_size=count))
    path = st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True).map(tuple)
    return Load(
        draw(st.lists(st.tuples(INSTANTS, path, st.integers(1, 20)), min_size=1, max_size=20)), capacity
    )


@st.composite
def stars(draw: st.DrawFn) -> Load:
    """Workers that push to servers: the up-links, then the servers' down-links; some cards are slow."""
    workers, servers = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    cards = st.sampled_from([10.0, 10.0, 10.0, 1.0, 40.0])
    capacity = [draw(cards) for _ in range(workers + servers)]
    push = st.tuples(
        st.one_of(st.integers(0, 5).map(float), st.floats(0, 5)),
        st.tuples(st.integers(0, workers - 1), st.integers(workers, workers + servers - 1)),
        st.sampled_from([5, 20, 21]),
    )
    return Load(draw(st.lists(push, min_size=1, max_size=30)), capacity)


@st.composite
def meshes(draw: st.DrawFn) -> Load:
    """Every host sends to every host, some at once; shares that are equal, and all but equal."""
    hosts = draw(st.integers(2, 7))
    card = st.sampled_from([10.0, 10.0, 10.0, 3.0])
    capacity = [draw(card) for _ in range(2 * hosts)]
    path = st.tuples(st.integers(0, hosts - 1), st.integers(hosts, 2 * hosts - 1))
    many = st.lists(st.tuples(INSTANTS, path, st.sampled_from([5, 20, 21])), max_size=30)
    everyone = st.tuples(st.integers(0, hosts - 1), st.sampled_from([0.0, 1.0, 1.5]))
    sent = draw(many)
    for host, at in draw(st.lists(everyone, min_size=1, max_size=3)):
        sent += [(at, (host, to), 5) for to in range(hosts, 2 * hosts)]
    return Load(sent, capacity)


@st.composite
def restless(draw: st.DrawFn) -> Load:
    """Any load, with token buckets, links that change, endless flows, and flows that are cancelled."""
    load = draw(st.one_of(anything(), stars(), meshes()))
    count = len(load.capacity)
    for link in draw(st.sets(st.integers(0, count - 1), max_size=3)):
        line_rate = draw(st.sampled_from([1.0, 1.5, 4.0, 20.0])) * 40.0
        load.buckets[link] = Bucket(draw(st.sampled_from([0.5, 5.0, 30.0])), line_rate)
    change = st.tuples(INSTANTS, st.integers(0, count - 1), CAPACITIES)
    load.changes = draw(st.lists(change, max_size=6))
    for number in draw(st.sets(st.integers(0, len(load.sent) - 1), max_size=3)):
        at, path, _ = load.sent[number]
        load.sent[number] = at, path, inf
        if draw(st.booleans()):
            load.cancelled[number] = draw(st.floats(0, 4))
    for number in draw(st.sets(st.integers(0, len(load.sent) - 1), max_size=3)):
        load.cancelled[number] = draw(st.floats(0, 4))
    return load


# Once wrong: a link that held nobody back, but would have if its flows had shared it equally.
ONCE_WRONG = [(3, (0,)), (7, (1,)), (13, (2,)), (7, (0, 1)), (10, (2, 0)), (1, (0, 1)), (2, (0, 1, 2))]


@pytest.mark.slow
@examples(3)
@given(st.one_of(anything(), stars()))
@example(Load([(0.0, path, size) for size, path in ONCE_WRONG] + [(8.0, (0, 1), 1)], [3.0, 2.0, 3.0]))
def test_flows_end_when_they_should(load: Load) -> None:
    assert_same(load)


@pytest.mark.slow
@examples(5)
@given(restless())
def test_so_they_do_when_links_burst_and_change_and_flows_are_cancelled(load: Load) -> None:
    assert_same(load)


@pytest.mark.slow
@examples(2)
@given(st.one_of(meshes(), restless()))
def test_a_solution_that_goes_on_from_the_last_has_the_bits_of_a_new_one(load: Load) -> None:
    assert bits(load, 0) == bits(load, InTurn()) == bits(load, inf)


@pytest.mark.slow
@examples(2)
@given(st.one_of(meshes(), anything(), restless()))
def test_the_kernel_has_the_same_bits(load: Load) -> None:
    """Compiled where numba is installed, else as Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockstep.simulator.solving.native", lambda *_: True)
        assert bits(load, 0, compiled=True) == bits(load, inf)


@pytest.mark.slow
@examples(0.25)
@given(st.one_of(meshes(), anything(), restless()))
def test_so_it_has_without_a_compiler(load: Load) -> None:
    with pytest.MonkeyPatch.context() as patch:
        looped.in_python(patch, kernel, "solve")
        patch.setattr("lockstep.simulator.solving.native", lambda *_: True)
        assert bits(load, 0, compiled=True) == bits(load, inf)


@pytest.mark.slow
def test_a_long_busy_link_stays_exact() -> None:
    """A link that is never idle for 20,000 flows: its clock grows, and its error must not."""
    found = fast(Load([(number * 0.9, (0,), 100) for number in range(20_000)], [100.0]))
    assert found.ends[19_999] == pytest.approx(20_000, rel=1e-9)
    assert found.carried[-1] == pytest.approx([2_000_000], rel=1e-12)


@pytest.mark.parametrize("nbytes", [10, 149, 150, 151, 1000])
def test_an_idle_bucket_lets_a_burst_through(nbytes: int) -> None:
    """50 tokens at 300 B/s over 200 B/s: 150 bytes in 0.5 s, then (M - 50)/200."""
    found = fast(Load([(3.0, (0,), nbytes)], [200.0], {0: Bucket(50.0, 300.0)}))
    assert found.ends[0] - 3 == pytest.approx(
        nbytes / 300 if nbytes <= 150 else (nbytes - 50) / 200, rel=1e-12
    )


def test_tokens_come_back_while_the_link_is_idle() -> None:
    """Of the 50 tokens 20 are back after 0.1 s at 200 B/s, so 60 bytes go at 300 B/s and 40 at 200."""
    sent = [(0.0, (0,), 150.0), (0.6, (0,), 100.0)]
    found = fast(Load(sent, [200.0], {0: Bucket(50.0, 300.0)}))
    assert found.ends == pytest.approx({0: 0.5, 1: 0.6 + 60 / 300 + 40 / 200}, rel=1e-12)


def test_half_the_bandwidth_for_a_while() -> None:
    """1,000 bytes at 100 B/s, but 50 B/s from 2 to 6 s: 200 + 200 + 600, done at 12 s."""
    assert fast(Load([(0.0, (0,), 1000)], [100.0], changes=[(2.0, 0, 50.0), (6.0, 0, 100.0)])).ends == {
        0: 12.0
    }


def test_background_traffic_takes_its_share_and_ends_when_cancelled() -> None:
    """Half of 100 B/s for 2 s, then all: 100 + 300 bytes, done at 5 s; without the cancel at 8 s."""
    sent = [(0.0, (0,), inf), (0.0, (0,), 400)]
    assert fast(Load(sent, [100.0], cancelled={0: 2.0})).ends == {1: 5.0}
    found = fast(Load(sent, [100.0]))
    assert found.ends == {1: 8.0}
    assert found.carried[-1] == pytest.approx([800])


def test_flows_that_have_ended_are_not_cancelled() -> None:
    found = fast(Load([(0.0, (0,), 100)], [100.0], cancelled={0: 2.0}))
    assert found.ends == {0: 1.0}
    assert found.carried[-1] == [100.0]


LINK = ResourceId("other", "link", 0)


@pytest.mark.parametrize("capacity", [0.0, -1.0, inf, float("nan")])
def test_a_capacity_is_positive(capacity: float) -> None:
    with pytest.raises(ValueError, match="server 0's link: a capacity is a positive number"):
        Link(ResourceId("card", "server", 0), capacity)
    with pytest.raises(ValueError, match="positive"):
        Flows(simpy.Environment()).set_capacity(Link(LINK, 1.0), capacity)


@pytest.mark.parametrize("bucket", [Bucket(0.0, 2.0), Bucket(1.0, 0.5)])
def test_a_bucket_bursts(bucket: Bucket) -> None:
    with pytest.raises(ValueError, match="a line rate not below the capacity"):
        Link(LINK, 1.0, bucket)
