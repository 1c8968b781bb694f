"""A simulation of a job that has been checked."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.analysis.result import Result
    from lockstep.job.plan import Plan


def simulate(plan: "Plan", progress: Callable[[float], None] | None = None) -> "Result":
    """As `lockstep.simulate`. Raises ScenarioError where memory has no room, and SimulationError."""
    from lockstep import work
    from lockstep.simulator import engine

    work.require_room(plan)
    return engine.simulate(plan, progress)
