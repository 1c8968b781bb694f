"""What else happens on the links during a run: their bandwidth varies, and others' traffic competes.

None of it keeps a run going: what is scheduled here stops once nothing else is under way.
"""

import difflib
import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import count, islice

import numpy as np
import simpy

from lockstep.scenarios import Background, ScenarioError, Varying
from lockstep.scenarios.section import FACTOR, is_factor
from lockstep.scenarios.units import shown
from lockstep.simulator.events import Aside
from lockstep.simulator.links import Flow, Link
from lockstep.simulator.network import Network
from lockstep.simulator.topology import Path, Topology
from lockstep.strategies.resource import ResourceId
from lockstep.workloads import seeds


def varying_links(topology: Topology, entries: Sequence[Varying]) -> list[list[Link]]:
    """Return the links that each entry's pattern names, with or without "the" in front.

    Raises `ScenarioError` (key ``cluster.network.varying[i]``) where there is none, and where all entries
    together multiply a link's bandwidth by what is no `Factor` any more.
    """
    found = []
    for index, entry in enumerate(entries):
        links = [link for link in topology.links if _is_called(link.id.name, entry.links)]
        if not links:
            raise ScenarioError(_no_link(topology, entry.links), f"cluster.network.varying[{index}].links")
        found.append(links)
    bounds: dict[Link, tuple[float, float]] = {}
    for index, (entry, links) in enumerate(zip(entries, found, strict=True)):
        factors = [factor for _, factor in entry.steps]
        for link in links:
            least, most = bounds.get(link, (1.0, 1.0))
            least, most = bounds[link] = least * min(factors), most * max(factors)
            if not (is_factor(least) and is_factor(most)):
                problem = (
                    f"with the entries before it, {link.id.name} has {least:g} to {most:g} times its "
                    f"bandwidth; their product must be {FACTOR}"
                )
                raise ScenarioError(problem, f"cluster.network.varying[{index}]")
    return found


def _is_called(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"the {pattern}")


def _no_link(topology: Topology, pattern: str) -> str:
    names = [link.id.name for link in topology.links]
    if not names:
        return "there is no link: bandwidths are unlimited; give cluster.network.bandwidth"
    near = difflib.get_close_matches(pattern[:60], names[:1000], n=1)
    question = f'; did you mean "{near[0]}"?' if near else ""
    rest = f", and {len(names) - 6} more" if len(names) > 6 else ""
    return f"no link is called {shown(pattern)}{question} (links: {', '.join(names[:6])}{rest})"


class _Varying:
    """A link whose capacity is multiplied by the factors of all entries that name it."""

    def __init__(self, network: Network, link: Link) -> None:
        self._flows, self._link = network.flows, link
        self._full = link.sustained
        self._factors: dict[int, float] = {}

    def set(self, entry: int, factor: float) -> None:
        """Give it an entry's factor from now on; a card is never faster than its line rate."""
        self._factors[entry] = factor
        capacity, tokens = self._full * math.prod(self._factors.values()), self._link.tokens
        if tokens is not None:
            capacity = min(capacity, tokens.bucket.line_rate)
        self._flows.set_capacity(self._link, capacity)


def vary(network: Network, entries: Sequence[Varying]) -> None:
    """Let the bandwidth of links change as the entries say."""
    found = varying_links(network.topology, entries)
    varying = {link: _Varying(network, link) for links in found for link in links}
    for index, (entry, links) in enumerate(zip(entries, found, strict=True)):
        _follow(network, index, [varying[link] for link in links], _instants(entry))


def _instants(entry: Varying) -> Iterator[tuple[float, float]]:
    """Yield the instants (s) of an entry's changes, for ever if it repeats, and the factors."""
    steps, repeat = entry.steps, entry.repeat
    for turn in (0,) if repeat is None else count():
        for at, factor in steps:
            yield turn * (repeat or 0.0) + at, factor


def _follow(
    network: Network, entry: int, links: Sequence[_Varying], instants: Iterator[tuple[float, float]]
) -> None:
    environment = network.environment

    def apply(factor: float) -> None:
        for link in links:
            link.set(entry, factor)
        for at, following in islice(instants, 1):
            Aside(environment, max(0.0, at - environment.now), partial(go_on, following))

    def go_on(factor: float, _: simpy.Event) -> None:
        if network.under_way():
            apply(factor)

    apply(next(instants)[1])  # at 0 s


def compete(network: Network, entries: Sequence[Background], goodput: float, seed: int) -> None:
    """Start the traffic of others, for as long as the run lasts."""
    for index, entry in enumerate(entries):
        path, _ = network.topology.path(entry.source, entry.to)
        for number in range(entry.flows if path else 0):
            own: Path = ()
            if entry.bandwidth is not None:
                limit = ResourceId("other", "background", index, "out", number)
                own = (Link(limit, entry.bandwidth * goodput),)
            source = _Source(network, (*own, *path))
            if entry.on is None or entry.off is None:
                source.turn_on()
            else:
                rng = seeds.generator(seed, "background", index, number)
                source.come_and_go(entry.on, entry.off, rng)


class _Source:
    """Sends without end over a path, whenever it is on."""

    def __init__(self, network: Network, path: Path) -> None:
        self._network, self._path = network, path
        self._flow: Flow | None = None

    def turn_on(self) -> None:
        """Send from now on."""
        self._flow = self._network.flows.start(self._path, math.inf, lambda: None)

    def come_and_go(self, on: float, off: float, rng: np.random.Generator) -> None:
        """Be on and off in turn, for exponential times of these means (s), from the first instant on."""
        if rng.random() < on / (on + off):
            self.turn_on()
        self._wait(on, off, rng)

    def _wait(self, on: float, off: float, rng: np.random.Generator) -> None:
        def turn(_: simpy.Event) -> None:
            if not self._network.under_way():
                return
            if self._flow is None:
                self.turn_on()
            else:
                self._network.flows.cancel(self._flow)
                self._flow = None
            self._wait(on, off, rng)

        Aside(self._network.environment, rng.exponential(off if self._flow is None else on), turn)
