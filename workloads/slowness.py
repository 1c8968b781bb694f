"""How much slower than a worker of speed 1 the stragglers are, at every instant and gradient.

What varies with time is a step function of it, so the seconds that some work takes are found exactly. All of
it is a function of the scenario and its seed: it does not depend on who asks, when, or in which order.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import floor, inf, nextafter, prod

import numpy as np

from lockstep.scenarios import Cluster, Scenario, ScenarioError
from lockstep.scenarios import stragglers as kinds
from lockstep.scenarios.section import FACTOR, is_factor
from lockstep.workloads import seeds


class Spells:
    """Slow and normal by turns, each for an exponential time: a Markov chain in its steady state.

    It starts slow with probability last / (every + last); how long it has been so does not matter.
    """

    def __init__(self, slowdown: float, every: float, last: float, rng: np.random.Generator) -> None:
        """Mean seconds of being normal (`every`) and slow (`last`)."""
        slow = rng.random() < last / (every + last)
        self._turns = ((slowdown, last), (1.0, every)) if slow else ((1.0, every), (slowdown, last))
        self._rng = rng
        self._ends = [rng.exponential(self._turns[0][1])]  # of the turns, as far as somebody asked

    def at(self, time: float) -> tuple[float, float]:
        """The slowdown at `time`, and the later instant until which it stays the same."""
        ends = self._ends
        while ends[-1] <= time:
            ends.append(ends[-1] + self._rng.exponential(self._turns[len(ends) % 2][1]))
        turn = bisect_right(ends, time)
        return self._turns[turn % 2][0], ends[turn]


class Cycle:
    """Given steps from `offset` on, over and over with `period` (None: once); 1 before them."""

    def __init__(
        self, steps: Sequence[tuple[float, float]], period: float | None = None, offset: float = 0.0
    ) -> None:
        """Each step is (seconds from the cycle's beginning, slowdown), rising, the first at 0."""
        self._times, self._values = zip(*steps, strict=True)
        self._period, self._offset = period, offset

    def at(self, time: float) -> tuple[float, float]:
        """The slowdown at `time`, and the later instant until which it stays the same (∞: for ever)."""
        if time < self._offset:
            return 1.0, self._offset
        begin, end = self._offset, inf
        if self._period is not None:
            turn = floor((time - begin) / self._period)
            turn += (self._begin(turn + 1) <= time) - (self._begin(turn) > time)  # a quotient is rounded
            begin, end = self._begin(turn), self._begin(turn + 1)
        # Compared as the instants that are returned, so that an answer is never the question.
        step = bisect_right(self._times, time, key=begin.__add__) - 1
        return self._values[step], begin + self._times[step + 1] if step + 1 < len(self._times) else end

    def _begin(self, turn: int) -> float:
        return self._offset + turn * (self._period or 0.0)


Steps = Spells | Cycle


class Chance:
    """Each gradient by itself takes `slowdown` times as long with `probability`."""

    def __init__(self, slowdown: float, probability: float, rng: np.random.Generator) -> None:
        self._slowdown, self._probability, self._rng = slowdown, probability, rng

    def factor(self) -> float:
        """How many times as long the next gradient takes."""
        return self._slowdown if self._rng.random() < self._probability else 1.0


class Slowness:
    """Everything that slows one worker: always, by gradients, and by time; it all multiplies."""

    def __init__(self, always: float = 1.0, chances: Sequence[Chance] = (), steps: Sequence[Steps] = ()):
        self._always, self._chances, self._steps = always, chances, steps

    @property
    def steady(self) -> bool:
        """Whether it does not depend on when a gradient is begun."""
        return not self._steps

    def seconds(self, now: float, work: float) -> float:
        """The seconds that the next gradient takes, begun at `now`, of `work` seconds at speed 1.

        With s(t) the slowdown at t: the least d with ∫ dt / s(t) = work × the gradient's factors, over
        [now, now + d].
        """
        work *= self._always
        for chance in self._chances:
            work *= chance.factor()
        if not self._steps:
            return work
        time = now
        while True:
            found = [steps.at(time) for steps in self._steps]
            slowdown, until = prod(value for value, _ in found), min(end for _, end in found)
            until = max(until, nextafter(time, inf))  # time goes on, however short the steps are
            if time + work * slowdown <= until:
                return (time - now) + work * slowdown
            work -= (until - time) / slowdown
            time = until


def slowness(scenario: Scenario) -> dict[int, Slowness]:
    """The slowness of every worker that has any, by its number."""
    cluster, seed = scenario.cluster, scenario.seed
    always = lasting(cluster)
    chances: dict[int, list[Chance]] = {}
    steps: dict[int, list[Steps]] = {}
    for index, item in enumerate(cluster.stragglers):
        for unit, workers in _slowed(cluster, item):
            # Workers that are slowed together share steps, or streams that are the same.
            if isinstance(item, kinds.Persistent):
                continue
            if isinstance(item, kinds.Occasional):
                for worker in workers:
                    rng = seeds.generator(seed, "occasional stragglers", index, unit)
                    chances.setdefault(worker, []).append(Chance(item.slowdown, item.probability, rng))
            else:
                common = _steps(item, seed, index, unit)
                for worker in workers:
                    steps.setdefault(worker, []).append(common)
    slow = sorted({*always, *chances, *steps})
    return {w: Slowness(always.get(w, 1.0), chances.get(w, ()), steps.get(w, ())) for w in slow}


def lasting(cluster: Cluster) -> dict[int, float]:
    """The slowdown that always holds, by kind and persistent stragglers, of every worker that has one."""
    always = _by_kind(cluster)
    for item in cluster.stragglers:
        if isinstance(item, kinds.Persistent):
            for _, workers in _slowed(cluster, item):
                always |= {worker: always.get(worker, 1.0) * item.slowdown for worker in workers}
    return always


def slowest(scenario: Scenario) -> float:
    """The most that any worker is slowed down by everything at once, as a factor of at least 1.

    Raises `ScenarioError` at the item that makes the product of a worker's slowdowns no `Factor` any more.
    """
    cluster = scenario.cluster
    bounds = {worker: (slowdown, slowdown) for worker, slowdown in _by_kind(cluster).items()}
    for index, item in enumerate(cluster.stragglers):
        given = [step for _, step in item.steps] if isinstance(item, kinds.Trace) else [item.slowdown, 1.0]
        for _, workers in _slowed(cluster, item):
            for worker in workers:
                least, most = bounds.get(worker, (1.0, 1.0))
                least, most = bounds[worker] = least * min(given), most * max(given)
                if not (is_factor(least) and is_factor(most)):
                    problem = (
                        f"with the items before it, worker {worker} takes {least:g} to {most:g} times as "
                        f"long; their product must be {FACTOR}"
                    )
                    raise ScenarioError(problem, key=f"cluster.stragglers[{index}]")
    return max([1.0, *(most for _, most in bounds.values())])


def _by_kind(cluster: Cluster) -> dict[int, float]:
    """The slowdown of every worker whose device has not the speed 1."""
    speeds = {worker: cluster.speed_of(worker) for worker in range(cluster.workers if cluster.kinds else 0)}
    return {worker: 1 / speed for worker, speed in speeds.items() if speed != 1}


def _slowed(cluster: Cluster, item: kinds.Straggler) -> list[tuple[int, list[int]]]:
    """The groups of workers that an item slows, each together, and a number for each group."""
    match item.scope:
        case None:
            return [(worker, [worker]) for worker in range(cluster.workers)]
        case "worker", worker:
            return [(worker, [worker])]
        case scope, number:
            return [(number, cluster.workers_by(scope)[number])]


def _steps(item: kinds.Spells | kinds.Periodic | kinds.Trace, seed: int, index: int, unit: int) -> Steps:
    match item:
        case kinds.Spells():
            rng = seeds.generator(seed, "slow spells", index, unit)
            return Spells(item.slowdown, item.spells.every, item.spells.last, rng)
        case kinds.Periodic():
            return Cycle([(0.0, item.slowdown), (item.busy, 1.0)], item.period, item.offset)
        case kinds.Trace():
            return Cycle(item.steps, item.repeat)
