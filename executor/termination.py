"""When a run without servers is over whose workers have second activities: when none of them can go on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.executor.journal import GoingOnPort
    from lockstep.executor.port import RealPort


def await_termination(port: "RealPort") -> None:
    """Once a worker's program has ended: wait until no activity of any worker can go on, or the run is over.

    Four counters (Mattern 1987, "Algorithms for distributed termination detection"): each worker tells, when
    it is idle, how many messages it has taken in, and how many it has sent only once all have told that. If
    the sums are equal, no message was under way in between, so that all are still idle.
    """
    question = 0
    beside = _sum(port, "activities", port.activities.started)
    while beside:
        while (taken_in := port.idle()) is None:
            if port.hold_on():
                return
        received = _sum(port, f"taken in {question}", taken_in)
        if received == _sum(port, f"sent {question}", port.transport.sent.total()):
            return
        question += 1


def await_who_is_there(port: "GoingOnPort") -> None:
    """The same where workers fail, and come back, while others go on: until all have said that they end.

    Messages of one worker keep their order, so that what it had sent before is there. Who begins anew has not
    ended; who is gone for good will send no more.
    """
    while not port.hold_on():
        port.say_farewell()
        if port.alone() and port.idle() is not None:
            return


def _sum(port: "RealPort", name: str, value: int) -> int | None:
    """The sum of what all workers tell under a name, when they have; None once the run is over."""
    port.store.add(f"sum/{name}", value)
    port.store.add(f"told/{name}", 1)
    while port.store.add(f"told/{name}", 0) < len(port.plan.workers):
        if port.hold_on():
            return None
    return int(port.store.add(f"sum/{name}", 0))
