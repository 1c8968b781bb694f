"""A gradient that is given up is not under way any more: who fails then has not lost it."""

from lockstep.job.incarnation import FIRST, Checkpoints
from lockstep.job.plan import Plan
from lockstep.job.recovery import Faults
from lockstep.scenarios.loading import made
from lockstep.simulator.faults import FaultySimulation
from tests.support.failing import CRASH, document


def test_who_has_given_up_computes_no_more() -> None:
    plan = Plan.of(made(document(CRASH, workload={"parameters": 10, "batch_size": 8}, strategy="k-sync")))
    simulation = FaultySimulation(plan, FIRST, Faults(plan), Checkpoints(plan))
    port, _ = simulation.stands_on(0)
    work = port.compute(None, 0)  # type: ignore[arg-type]
    assert port.computes_until == 0.05  # type: ignore[attr-defined]
    work.give_up()
    assert port.computes_until == 0.0  # type: ignore[attr-defined]
    simulation.run()
