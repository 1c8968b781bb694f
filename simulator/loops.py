"""Which loop makes a whole run, if one does."""

from typing import TYPE_CHECKING

from lockstep.simulator.asynchronous import Asynchronous
from lockstep.simulator.errors import Untraceable
from lockstep.simulator.jit import able
from lockstep.simulator.loop import Loop
from lockstep.simulator.traced import Traced

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation

KINDS: tuple[type[Loop], ...] = Asynchronous, Traced


def loop(simulation: "Simulation", *, always: bool = False) -> Loop | None:
    """What makes a run; None: its programs. always: also where it does not pay to load what is compiled."""
    for kind in KINDS:
        if kind.follows(simulation):
            try:
                return kind.of(simulation) if not always else kind(simulation) if able() else None
            except Untraceable:
                return None
    return None
