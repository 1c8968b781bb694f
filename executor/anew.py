"""A worker of a real run whose server is back after a failure: its connections are broken.

It loses the gradient that it is at, and begins again with a pull, in the same process: as its peer's TCP
connection would tell a worker of others that there is another server.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from lockstep.executor.interleaving import RecordedPort
from lockstep.job.incarnation import Incarnation
from lockstep.job.node import Node
from lockstep.strategies.node import Message
from lockstep.workloads.compute_time import compute_times

if TYPE_CHECKING:
    from lockstep.executor.journal import GoingOnPort

ANEW = "anew"  # a server says so to its workers, when it is back
_LOOK_S = 0.01  # how often a worker that has ended looks for that


class Anew(BaseException):
    """The program is to begin anew."""


def begin_anew(port: "GoingOnPort", recorded: RecordedPort, listen: Callable[[], None]) -> None:
    """Put another node in the place of a worker's, and tell its servers.

    listen: lets the port's node take messages in.
    """
    node, transport, rank = port.node, port.transport, port.rank
    port.give_up()
    port.drop_all()
    step = node.step - bool(node.under_way)
    life = Incarnation(transport.life + 1, port.now, steps={rank: step}, rejoins=True)
    transport.begin_anew(life.number)
    if port.computing.compute_time is not None:
        port.computing.take(compute_times(port.plan.scenario, port.plan.sizes, life.key())[rank])
    port.node = Node(
        port.plan, rank, node.port, node.recorder, node.ending, node.arithmetic, None, node.epoch, life
    )
    port.node.noted = node.noted
    listen()
    recorded.begin_anew(life.number, step, life.start)
    for server in port.node.parents if port.node.rejoins else ():
        recorded.post(server, Message("join", rank))


def await_others(port: "GoingOnPort", recorded: RecordedPort) -> None:
    """Wait until all have ended; a server that is back meanwhile hears that this worker has."""
    ended = "barrier/end"
    port.store.add(ended, 1)
    while port.store.add(ended, 0) < len(port.plan.roles):
        port.inbox.wait(_LOOK_S)
        if port.broken:
            port.drop_all()
            port.transport.begin_anew(port.transport.life + 1)
            for server in port.node.parents:
                recorded.log.note("leave", peer=server)
                recorded.post(server, Message("leave", port.rank))
        port.say_farewell()
