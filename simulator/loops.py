"""Which loop makes a whole run, if one does."""

from typing import TYPE_CHECKING

from lockstep.simulator.asynchronous import Asynchronous
from lockstep.simulator.errors import Untraceable
from lockstep.simulator.loop import Loop
from lockstep.simulator.traced import Traced

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation


def loop(simulation: "Simulation", *, always: bool = False) -> Loop | None:
    """What makes a run; None: its programs. always: also where it does not pay to load what is compiled."""
    kinds: tuple[type[Loop], ...] = Asynchronous, Traced
    kind = next((each for each in kinds if each.follows(simulation)), None)
    if kind is None or (always and not kind.able()):
        return None
    try:
        return kind(simulation) if always else kind.of(simulation)
    except Untraceable:
        return None
