"""How a strategy's coroutine is run in real time: a thread blocks until what it awaits has happened."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from lockstep.executor.turns import Turns
from lockstep.job.events import Event, Retired


class Blocks(Protocol):
    """What can let a thread wait."""

    turns: Turns

    def until(self, event: Event) -> None:
        """Return when it has happened."""


def run_to_end(
    program: Coroutine[Any, Any, None], port: Blocks, ended: Callable[[], object] = lambda: None
) -> None:
    """Run an activity of a node to its end, or the node's, in turns with the others; then call `ended`."""
    port.turns.take()
    try:
        failure: BaseException | None = None
        while True:
            awaited = program.send(None) if failure is None else program.throw(failure)
            if not isinstance(awaited, Event):
                program.close()
                raise TypeError("a strategy may only await members of its node")
            try:
                port.until(awaited)
            except BaseException as error:
                failure = error
            else:
                failure = None
    except (StopIteration, Retired):
        ended()
    finally:
        port.turns.give_up()
