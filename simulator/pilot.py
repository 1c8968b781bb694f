"""The beginning of a run, to tell how long all of it would take."""

from collections.abc import Sequence
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from simpy.core import StopSimulation

from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario
from lockstep.simulator.engine import Simulation, no_garbage
from lockstep.simulator.events import Process
from lockstep.simulator.loops import loop
from lockstep.simulator.ring import Disturbed

_EVENTS = 256  # between two looks at the clock
_LONGEST = 10  # times as long, where nothing is done before
_LONG = 60  # s of a run, from which on it is looked how long a loop takes that makes it (loops.py)
_ENOUGH = 0.3  # s that such a beginning takes
_NOTHING = 1e-12  # what is done of a run that does not come forward


class Pilot(NamedTuple):
    """How a run began."""

    done: float
    """How much of it was done, above 0 to 1."""
    steps: int
    """Mini-batches that were begun."""
    virtual_s: float
    """The seconds that passed in it."""
    took_s: float
    """The seconds that passed here."""
    nbytes: int
    """Bytes of its records."""


def pilot(scenario: Scenario, seconds: float) -> Pilot:
    """Simulate the beginning of a run, by its sizes only; longer than so many seconds only if need be.

    What is sent by rows is what mini-batches touch: such a run learns.
    """
    plan = Plan.of(scenario)
    if plan.touching is None:
        plan = Plan.of(scenario.sizes_only)
    simulation = Simulation(plan)
    try:
        found = _run(simulation, seconds)
    except Disturbed:
        return _run(Simulation(plan, shortcuts=False), seconds)
    long = found.virtual_s > 0 and found.took_s / found.done > _LONG
    return _in_a_loop(plan, found) if long and not scenario.workload.learns else found


def _in_a_loop(plan: Plan, by_events: Pilot) -> Pilot:
    """The same of a run that a compiled loop makes, once that is loaded, if one does."""
    simulation, stop = Simulation(plan), plan.scenario.stop.time or inf
    until, took = by_events.virtual_s, 0.0
    with no_garbage():
        looped = loop(simulation, always=True)
    if looped is None:
        simulation.environment.give_up()
        return by_events
    try:
        looped.run(0.0)
        begin = monotonic()
        while took < _ENOUGH and until < stop and not looped.over:
            looped.run(until)
            until, took = 2 * until, monotonic() - begin
    except Disturbed:
        return by_events
    done = 1.0 if looped.over else simulation.fraction(simulation.steps)
    nbytes = simulation.recorder.nbytes
    return Pilot(max(done, _NOTHING), simulation.steps, simulation.environment.now, took, nbytes)


def _run(simulation: Simulation, seconds: float) -> Pilot:
    environment, queue, begin = simulation.environment, simulation.environment._queue, monotonic()
    workers = [simulation.nodes[rank] for rank in simulation.programs]
    until = simulation.scenario.stop.time or inf
    ended, tells, done = False, False, 0.0
    with no_garbage():
        while not ended and monotonic() < begin + (seconds if tells else _LONGEST * seconds):
            try:
                for _ in range(_EVENTS + len(workers) // 8):
                    if not queue or queue[0][0] >= until:
                        raise StopSimulation(None)
                    environment.step()
            except StopSimulation:
                ended = True
            steps, under_way = simulation.steps, sum(node.step > 0 for node in workers)
            done = simulation.fraction(steps - under_way / 2)  # on average
            tells = done > 0 and steps >= 2 * len(workers)  # a round of messages may be all of the work
    _leave(queue)
    took, records = monotonic() - begin, simulation.recorder.nbytes * simulation.copies
    return Pilot(1.0 if ended else max(done, _NOTHING), simulation.steps, environment.now, took, records)


def _leave(queue: Sequence[Any]) -> None:
    """Activities that were begun, and that nobody will await, are not to be missed by Python."""
    for *_, event in queue:
        for callback in event.callbacks or ():
            if isinstance(process := getattr(callback, "__self__", None), Process):
                process.kill()


_ROUNDS = 5  # of all workers, at least: the first ones are unlike the others


def instant(scenario: Scenario, events: int, nbytes: int) -> float | None:
    """The virtual time (s) that a run reaches with so many events, or bytes of records; None: it ends.

    All workers make some mini-batches at least. It does not depend on how fast this machine is.
    """
    plan = Plan.of(scenario)
    try:
        return _reached(Simulation(plan), events, nbytes)
    except Disturbed:
        return _reached(Simulation(plan, shortcuts=False), events, nbytes)


def _reached(simulation: Simulation, events: int, nbytes: int) -> float | None:
    environment, queue, made = simulation.environment, simulation.environment._queue, 0
    until = simulation.scenario.stop.time or inf
    rounds = _ROUNDS * len(simulation.programs)
    with no_garbage():
        while queue and queue[0][0] < until:
            enough = made >= events or simulation.recorder.nbytes * simulation.copies >= nbytes
            if enough and simulation.steps >= rounds and environment.now > 0:
                _leave(queue)
                return environment.now
            try:
                for _ in range(_EVENTS):
                    if queue:
                        environment.step()
            except StopSimulation:
                return None
            made += _EVENTS
    return None
