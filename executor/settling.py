"""When a run without servers is over whose workers have second activities: when none of them can go on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.executor.node import RealNode


def settle(node: "RealNode") -> None:
    """Once a worker's program has ended: wait until no activity of any worker can go on, or the run is over.

    Four counters (Mattern 1987, "Algorithms for distributed termination detection"): each worker tells, when
    it is idle, how many messages it has taken in, and how many it has sent only once all have told that. If
    the sums are equal, no message was under way in between, so that all are still idle.
    """
    question = 0
    beside = _sum(node, "activities", node.activities.started)
    while beside:
        while (taken_in := node.mailbox.taken_in_if_idle(node.activities.alive)) is None:
            if node.hold_on():
                return
        received = _sum(node, f"taken in {question}", taken_in)
        if received == _sum(node, f"sent {question}", node.transport.sent.total()):
            return
        question += 1


def _sum(node: "RealNode", name: str, value: int) -> int | None:
    """The sum of what all workers tell under a name, when they have; None once the run is over."""
    node.store.add(f"sum/{name}", value)
    node.store.add(f"told/{name}", 1)
    while node.store.add(f"told/{name}", 0) < len(node.workers):
        if node.hold_on():
            return None
    return int(node.store.add(f"sum/{name}", 0))
