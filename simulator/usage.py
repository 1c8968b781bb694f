"""How busy each link was, over time.

What links have carried is read when enough flows have ended for the reading to cost little beside them, and
the readings thin themselves out, so that a run of any length keeps at most `_MOST` intervals. Reading
changes nothing, so a run is the same with it and without.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lockstep.analysis.utilisation import Utilisation
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Link
from lockstep.strategies.resource import ResourceId

_MOST = 128
_FLOWS_PER_VALUE = 3  # that end before a value is read again: it then takes about one percent of the run


class Reading(NamedTuple):
    """What has been done by an instant, since the start of the run."""

    time: float  # s
    carried: np.ndarray  # bytes, by each link
    offered: np.ndarray  # bytes that each link could have carried at its capacity
    worked: np.ndarray  # s that each of the other resources was busy


class Usage:
    """Watches the links of a run, and other resources that can say how long they have been busy."""

    def __init__(
        self, flows: Flows, links: Sequence[Link], stand_ins: Mapping[Link, Link], share: int = 1
    ) -> None:
        """stand_ins: of links that carry nothing, what others carry is said; share: each has so many times
        less capacity, and carries so many times less, than the one that it stands for."""
        self._flows, self._share = flows, share
        self._ids = [link.id for link in links]
        read = {stand_ins.get(link, link): None for link in links}
        self._links = list(read)
        places = {link: place for place, link in enumerate(read)}
        self._places = [places[stand_ins.get(link, link)] for link in links]
        self._others: dict[ResourceId, Callable[[], float]] = {}
        self._bursts = np.array([link.tokens.bucket.most if link.tokens else 0.0 for link in self._links])
        self._readings: list[Reading] = []
        self._distance = 1  # between two readings, in flows that have ended
        flows.watch(self._watch)

    def add(self, id: ResourceId, busy_seconds: Callable[[], float]) -> None:
        """Watch another resource, before the run: how many seconds it has been busy since its start."""
        self._others[id] = busy_seconds

    def until(self, end: float) -> Utilisation:
        """What was watched, up to an instant.

        `busy` is the bytes as a fraction of those that the link's capacity, time-varying or not, allows in
        the interval; above 1 where a token bucket lets a burst through. Of other resources, whose `bytes`
        are NaN, it is the fraction of the interval. An interval that ends later is cut, and taken as uniform.
        """
        readings = [*self._readings, self._read()]
        if len(readings) > 1 and readings[-2].time == readings[-1].time:  # one was taken just now
            del readings[-2]
        if readings[0].time > 0:
            nothing = np.zeros(len(self._links))
            readings.insert(0, Reading(0.0, nothing, nothing, np.zeros(len(self._others))))
        all_times = np.array([reading.time for reading in readings])
        times = np.minimum(all_times, end)
        times = times[np.diff(times, prepend=-np.inf) > 0]
        since, to = times[:-1], times[1:]

        def in_each_interval(values: list[np.ndarray]) -> np.ndarray:
            done = np.array(values)
            if times[-1] < all_times[len(times) - 1]:  # the last interval is cut
                here = len(times) - 1
                rate = (done[here] - done[here - 1]) / (all_times[here] - all_times[here - 1])
                done[here] = rate * (end - all_times[here - 1]) + done[here - 1]
            return np.diff(done[: len(times)], axis=0).T

        carried = in_each_interval([reading.carried for reading in readings])
        busy = in_each_interval([reading.offered for reading in readings])
        worked = in_each_interval([reading.worked for reading in readings])
        np.divide(carried, busy, out=busy)
        carried *= self._share
        return Utilisation(
            [*self._ids, *self._others],
            since,
            to,
            np.concatenate([carried[self._places], np.full(worked.shape, np.nan)]),
            np.concatenate([busy[self._places], worked / (to - since)]),
        )

    def _watch(self) -> int:
        """Take a reading; how many flows should end before the next one."""
        links = self._links
        if not self._readings or self._flows.environment.now > self._readings[-1].time:
            reading = self._read()
            self._check(reading)
            self._readings.append(reading)
        values = sum([len(link.flows) for link in links]) + len(links) + len(self._others)
        self._distance = max(self._distance, values * _FLOWS_PER_VALUE)
        if len(self._readings) == _MOST:
            del self._readings[::2]
            self._distance *= 2
        return self._distance

    def _read(self) -> Reading:
        flows, links = self._flows, self._links
        return Reading(
            flows.environment.now,
            np.array([flows.carried(link) for link in links]),
            np.array([flows.offered(link) for link in links]),
            np.array([busy_seconds() for busy_seconds in self._others.values()]),
        )

    def _check(self, reading: Reading) -> None:
        """No link may have carried more since the last reading than it can."""
        carried, offered = reading.carried, reading.offered
        if self._readings:
            carried, offered = carried - self._readings[-1].carried, offered - self._readings[-1].offered
        # What a link has carried is rounded as what has come to it is, however short the time.
        entered = np.array([link.entered for link in self._links])
        above = np.flatnonzero(carried > offered + self._bursts + 1e-9 * reading.offered + 1e-12 * entered)
        if len(above):
            raise SimulationError(
                f"{self._links[above[0]].id.name} has carried more than its capacity allows"
            )
