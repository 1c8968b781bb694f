"""Simulating many candidates as a sweep does, on all cores; what comes of it does not depend on how many.

All run for a time: a bound in mini-batches per worker would let the fast workers idle in the end, and make
every strategy look as if it waited for the stragglers. Where nothing is learned, it is one in which workers
exchange something `EXCHANGES` times or more, estimated by a short run, the pilot. It is the pilot alone
where that says as much: where all steps are the same, and of a candidate that others are far ahead of.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from math import isclose
from typing import Any, NamedTuple

from lockstep.analysis.cost import usd_per_hour
from lockstep.job.quota import quota
from lockstep.job.version import version
from lockstep.recommendation.in_step import averages_gradients, in_step
from lockstep.recommendation.space import Candidate
from lockstep.scenarios import Compute, Scenario
from lockstep.scenarios.compute import Constant
from lockstep.scenarios.stragglers import Persistent
from lockstep.simulator.pilot import pilot
from lockstep.strategies import STRATEGIES, find
from lockstep.sweeping import backends
from lockstep.sweeping.points import Plan, Run
from lockstep.sweeping.running import outcomes
from lockstep.workloads import sizes

EXCHANGES = 25  # what is under way when time is up is then at most 2% of all on average
_LOOK_S = 0.5  # of a pilot, to tell how long it takes
_PILOT = 2  # exchanges from which the time of one is estimated
_SAME = 1e-3  # steps take the same time if they differ by less: a tenth of what settings have to differ by

Row = dict[str, Any]


class Job(NamedTuple):
    """A simulation of a candidate for `time` seconds; None: as long as `timed` finds.

    `learns`: until the target is reached, if it comes earlier; otherwise by sizes only.
    """

    candidate: Candidate
    scenario: Scenario
    learns: bool
    time: float | None = None

    def seeded(self, seed: int) -> "Job":
        """The same with another seed."""
        return self._replace(scenario=self.scenario.model_copy(update={"seed": seed}))

    @property
    def bounded(self) -> Scenario:
        """The scenario that is simulated."""
        if self.learns:
            return until_target(self.scenario, self.time)
        return stopping(self.scenario.sizes_only, time=self.time)

    @property
    def _few(self) -> int:
        return max(_PILOT * self.candidate.cycle, 3)

    @property
    def pilot(self) -> Scenario:
        """A short run of it, some mini-batches a worker, by sizes only."""
        return self._steps(self._few)

    @property
    def one_step(self) -> Scenario:
        """The first step of its pilot."""
        return self._steps(1)

    def _steps(self, steps: int) -> Scenario:
        return stopping(self.scenario.sizes_only, steps=steps)

    @property
    def deterministic(self) -> bool:
        """Whether nothing in it is random, whatever the seed, nor changes with time."""
        cluster, given = self.scenario.cluster, self.scenario.strategy
        compute, network = cluster.compute, cluster.network
        known = isinstance(compute, Compute) and isinstance(compute.time, Constant | None)
        steady = all(isinstance(each, Persistent) for each in cluster.stragglers)
        chancy = network.varying or network.background or network.burst or network.jitter
        steady = steady and not (chancy or network.tcp or cluster.faults)
        strategy = find(given.name, given.parameters)
        return not self.learns and known and steady and averages_gradients(strategy, given.parameters)

    def repeats(self, pilot: Row, first: Row) -> bool:
        """Whether all steps of its pilot take as long as the first of them: so do then all others."""
        if not (in_step(pilot) and in_step(first)):
            return False
        return isclose(pilot["duration_s"], self._few * first["duration_s"], rel_tol=_SAME)

    def takes(self) -> float:
        """About how many seconds here its simulation takes, by the beginning of its pilot."""
        seen = pilot(self.pilot, _LOOK_S)
        return seen.took_s / seen.done * EXCHANGES * self.candidate.cycle / self._few

    def seconds(self, pilot: Row) -> float:
        """How long it takes to do what the file's `stop` allows (and to exchange enough), by its pilot."""
        stop = self.scenario.stop
        steps = (EXCHANGES + 0.5) * self.candidate.cycle  # no round ends there, not even a hair after
        if self.learns:
            steps = (
                quota(self.scenario, sizes(self.scenario.workload).samples, True).each or stop.updates or 1
            )
        return (pilot.get("duration_s") or 1.0) / self._few * max(steps, stop.steps or 0)


def stopping(scenario: Scenario, **bounds: Any) -> Scenario:
    """The scenario with these bounds in `stop`, and no others."""
    stop = type(scenario.stop).model_construct(**bounds)
    return scenario.model_copy(update={"stop": stop})


def until_target(scenario: Scenario, time: float | None) -> Scenario:
    """The scenario until its target is reached, or that time is over (s)."""
    target, accuracy = scenario.stop.target, scenario.stop.target_accuracy
    return stopping(scenario, time=time, target_accuracy=accuracy, target=target)


def hosts(scenario: Scenario) -> int:
    """How many machines the scenario keeps busy: the workers' hosts, and the servers' if it has any."""
    served = STRATEGIES[scenario.strategy.name].has_servers
    return scenario.cluster.hosts + (scenario.cluster.servers.hosts if served else 0)


def price(scenario: Scenario) -> float | None:
    """USD an hour of all machines that the scenario keeps busy; None if one has no price."""
    return usd_per_hour(scenario.cluster, STRATEGIES[scenario.strategy.name].has_servers)


def timed(jobs: Sequence[Job], processes: int | None = None) -> list[Job]:
    """The jobs, each with a time: the file's, or what a pilot of it suggests."""
    return [job for job, _ in piloted(jobs, processes)]


def piloted(jobs: Sequence[Job], processes: int | None = None) -> list[tuple[Job, Row | None]]:
    """The jobs with a time, and the pilots that suggested it; None: it was known."""
    found = [job if job.time else job._replace(time=job.scenario.stop.time) for job in jobs]
    pilots = iter(list(simulated([job.pilot for job in found if job.time is None], processes)))
    rows = [None if job.time else next(pilots) for job in found]
    return [
        (job if row is None else job._replace(time=job.seconds(row)), row)
        for job, row in zip(found, rows, strict=True)
    ]


Behind = Callable[[Sequence[tuple[Job, Row]]], Collection[int]]


def simulate_all(
    jobs: Sequence[Job],
    processes: int | None = None,
    done: Callable[[], None] = lambda: None,
    behind: Behind = lambda _: (),
) -> Iterator[Row]:
    """A row for each job, in their order, as they come; `processes`: all cores if None.

    `behind` gives, of jobs and their pilots, the places of those of which no more need be known.
    """
    timed = piloted(jobs, processes)
    pilots = [(job, row) for job, row in timed if row is not None]
    candidates = [(job, row) for job, row in pilots if job.deterministic and in_step(row)]
    firsts = simulated([job.one_step for job, _ in candidates], processes)
    enough = {id(row) for (job, row), one in zip(candidates, firsts, strict=True) if job.repeats(row, one)}
    enough |= {id(pilots[place][1]) for place in behind(pilots)}
    rows = simulated([job.bounded for job, row in timed if id(row) not in enough], processes, done)
    for _, row in timed:
        if row is not None and id(row) in enough:
            done()
            yield row
        else:
            yield next(rows)


def simulated(
    scenarios: Sequence[Scenario], processes: int | None = None, done: Callable[[], None] = lambda: None
) -> Iterator[Row]:
    """A row of the table of results for each scenario, in their order, as they come."""
    if not scenarios:
        return
    runs = [Run(at, "", scenario) for at, scenario in enumerate(scenarios)]
    backend = backends.choose("joblib", processes, None, Plan(scenarios[0], runs, [], 0, "simulator", False))
    early: dict[int, Row] = {}
    following = 0
    for run, (row, _) in outcomes(runs, backend, lambda _: ("simulator", False, version("simulator"), False)):
        early[run.point] = row
        while following in early:
            done()
            yield early.pop(following)
            following += 1
