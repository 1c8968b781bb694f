"""What `lockstep simulate` does with any file: a result that keeps all laws, or one message."""

from pathlib import Path

from hypothesis import event

import lockstep
from lockstep import Result, ScenarioError, work
from lockstep.simulator.errors import SimulationError
from lockstep.studies.chaos.invariants import broken
from tests.support.laws import keeps_the_laws, soon

SOON_S = 1.0  # what is estimated to take longer, or to need so many bytes, is asked about, not run
ROOM = 1e9
LONGEST = 700  # characters of a message


def simulated(source: str | Path, *overrides: str) -> Result | None:
    """The result, once it is known to keep the laws of all runs; None for what is refused as it should be."""
    with soon():
        try:
            scenario = lockstep.load(source, overrides)
            lockstep.check(scenario)
            needed = work.simulating(scenario)
            if needed.seconds > SOON_S or needed.nbytes > ROOM:
                event("would take long")
                return None
            result = lockstep.simulate(scenario)
        except ScenarioError as refused:
            event("refused")
            one_message(refused)
            return None
        except SimulationError as failed:
            if "cluster.faults[" not in str(failed):
                raise
            event("failed, as it was to")
            return None
        keeps_the_laws(result)
        assert not [*broken(result)]
        event("ran")
        return result


def one_message(refused: Exception) -> None:
    """It is one that a terminal shows in a line or a few."""
    said = str(refused)
    assert said.isprintable(), repr(said)
    assert 10 < len(said) <= LONGEST, said
