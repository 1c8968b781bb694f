"""Simulating many candidates as a sweep does, on all cores; what comes of it does not depend on how many.

All run for a time: a bound in mini-batches per worker would let the fast workers idle in the end, and make
every strategy look as if it waited for the stragglers. Where nothing is learned, it is one in which workers
exchange something `EXCHANGES` times or more, estimated by a short run, the pilot.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from lockstep.job.quota import quota
from lockstep.recommendation.space import Candidate
from lockstep.scenarios import Scenario
from lockstep.strategies import STRATEGIES
from lockstep.sweeping import backends
from lockstep.sweeping.points import Plan, Run
from lockstep.sweeping.running import outcomes
from lockstep.sweeping.version import version
from lockstep.workloads import sizes

EXCHANGES = 25  # what is under way when time is up is then at most 2% of all on average
_PILOT = 2  # exchanges from which the time of one is estimated

Row = dict[str, Any]


class Job(NamedTuple):
    """A simulation of a candidate for `time` seconds; None: as long as `timed` finds.

    `learns`: until the target accuracy, if it comes earlier; otherwise by sizes only.
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
            return stopping(self.scenario, time=self.time, target_accuracy=self.scenario.stop.target_accuracy)
        return stopping(self.scenario.sizes_only, time=self.time)

    @property
    def _few(self) -> int:
        return max(_PILOT * self.candidate.cycle, 3)

    @property
    def pilot(self) -> Scenario:
        """A short run of it, some mini-batches a worker, by sizes only."""
        return stopping(self.scenario.sizes_only, steps=self._few)

    def seconds(self, pilot: Row) -> float:
        """How long it takes to do what the file's `stop` allows (and to exchange enough)."""
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


def hosts(scenario: Scenario) -> int:
    """How many machines the scenario keeps busy: the workers' hosts, and the servers' if it has any."""
    served = STRATEGIES[scenario.strategy.name].has_servers
    return scenario.cluster.hosts + (scenario.cluster.servers.hosts if served else 0)


def timed(jobs: Sequence[Job], processes: int | None = None) -> list[Job]:
    """The jobs, each with a time: the file's, or what a pilot of it suggests."""
    found = [job if job.time else job._replace(time=job.scenario.stop.time) for job in jobs]
    pilots = iter(list(simulated([job.pilot for job in found if job.time is None], processes)))
    return [job if job.time else job._replace(time=job.seconds(next(pilots))) for job in found]


def simulate_all(
    jobs: Sequence[Job], processes: int | None = None, done: Callable[[], None] = lambda: None
) -> Iterator[Row]:
    """A row for each job, in their order, as they come; `processes`: all cores if None."""
    yield from simulated([job.bounded for job in timed(jobs, processes)], processes, done)


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
