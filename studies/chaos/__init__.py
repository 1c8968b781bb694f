"""`lockstep chaos`: runs that are struck at random, again and again, and what must hold of each all the same.

A real run is struck from outside (`blows`): any of its processes is killed, or stopped for a while, its
launcher and the process that it forks from too, from the first one's start to the last one's end. In virtual
time (`drawn`) faults of all kinds are drawn, by the thousand. Whatever befalls a run, it ends, with a result
or with one message that says why; nothing of it is left; and what it has recorded adds up (`invariants`).
"""

from dataclasses import dataclass

ENDS = {"ended": "ended well", "said": "ended, and said why", "resumed": "died as a whole, and went on"}
"""How a trial may end."""


@dataclass(frozen=True)
class Trial:
    """One run, what befell it, and what came of it."""

    number: int
    struck: tuple[str, ...]
    """What befell it, in words."""
    end: str
    """One of `ENDS`, or `broken`."""
    said: str
    """Its message, if it did not end well."""
    wrong: tuple[str, ...]
    """What must not be; nothing, unless it is broken."""
    seconds: float
