"""Workers that are there only from some time on, or until some time: by plan, not because they fail.

Membership is messages: servers, or the other workers, hear `leave` before anything else on behalf of those
who are still to join, `join` from a worker when it begins, and `leave` when its program has ended.
"""

from math import inf

from lockstep.strategies.node import Node
from lockstep.strategies.strategy import Program

ALWAYS = 0.0, inf
"""From when until when a worker is there, s, of which the scenario says nothing."""


def joining(program: Program, at: float) -> Program:
    """A worker's program, which it begins at that time, s."""

    async def later(node: Node) -> None:
        if not node.rejoins:  # else it is back after a failure, which all are told
            await node.sleep(max(0.0, at - node.now))
            node.rejoins = True
            for other in node.parents or node.workers:
                if other != node.rank:
                    node.send(other, "join")
        await program(node)

    return later
