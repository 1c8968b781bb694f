"""Simulating many candidates, on all cores; what comes of it does not depend on how many those are.

Where nothing is learned, a candidate runs for a time in which its workers exchange something `EXCHANGES`
times or more: a bound in mini-batches per worker would let the fast workers idle in the end, and make every
strategy look as if it waited for the stragglers.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import lockstep
from analysis import table
from lockstep.recommendation.space import Candidate
from lockstep.sweeping.backends import cores, here
from scenarios import Scenario

EXCHANGES = 25  # what is under way when time is up is then at most 2% of all on average
_PILOT = 2  # exchanges from which the time of one is estimated

Row = dict[str, Any]


class Job(NamedTuple):
    """A simulation: a candidate's scenario as the file's bounds have it, and how often its workers talk."""

    candidate: Candidate
    scenario: Scenario
    learns: bool

    def seeded(self, seed: int) -> "Job":
        """The same with another seed."""
        return self._replace(scenario=self.scenario.model_copy(update={"seed": seed}))


def bounded(job: Job) -> Scenario:
    """The scenario that is simulated for the job: the file's, or without learning one of a fixed time."""
    if job.learns:
        return job.scenario
    scenario, cycle = job.scenario, job.candidate.cycle
    workload = scenario.workload.model_copy(update={"learning": False})
    scenario = scenario.model_copy(update={"workload": workload})
    if scenario.stop.time is not None:
        return _stopping(scenario, time=scenario.stop.time)
    steps = max(scenario.stop.steps or 0, EXCHANGES * cycle)
    few = max(_PILOT * cycle, 3)
    pilot = lockstep.simulate(_stopping(scenario, steps=few))
    return _stopping(scenario, time=(pilot.span[1] or 1.0) / few * steps)


def _stopping(scenario: Scenario, **bound: Any) -> Scenario:
    stop = type(scenario.stop).model_construct(**bound)
    return scenario.model_copy(update={"stop": stop})


def one(job: Job) -> Row:
    """A row of the table of results, with what the candidate is."""
    try:
        result = lockstep.simulate(bounded(job))
        return {"status": "ok", "error": None, **table.row(result), "hosts": hosts(job.scenario)}
    except (RuntimeError, lockstep.ScenarioError) as error:
        failure = f"{type(error).__name__}: {error}".splitlines()[0]
        return {
            "status": "failed",
            "error": failure,
            **table.keys(job.scenario),
            "hosts": hosts(job.scenario),
        }


def hosts(scenario: Scenario) -> int:
    """How many machines the scenario keeps busy: the workers' hosts, and the servers' if it has any."""
    from strategies import STRATEGIES

    served = STRATEGIES[scenario.strategy.name].has_servers
    return scenario.cluster.hosts + (scenario.cluster.servers.hosts if served else 0)


def simulate_all(
    jobs: Sequence[Job], processes: int | None = None, done: Callable[[], None] | None = None
) -> Iterator[Row]:
    """A row for each job, in their order, as they come; `processes`: all cores if None."""
    processes = min(processes or os.cpu_count() or 1, max(1, len(jobs)))
    with cores(processes) if processes > 1 else here() as workers:
        made: Iterable[Future[Row]] = (workers.submit(one, job) for job in jobs)
        for future in list(made) if processes > 1 else made:
            row = future.result()
            if done is not None:
                done()
            yield row
