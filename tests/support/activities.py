"""Programs whose workers do something beside them."""

from typing import Any

from lockstep.executor import process
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy


async def relay_race(node: Node) -> None:
    """A baton goes around after all programs have ended; for most of the time it is in no message."""

    async def runner() -> None:
        while True:
            baton = await node.receive("baton")
            await node.sleep(0.03)
            merged = baton.contributions(baton.version + 2)
            await node.updated(1 + baton.version // len(node.workers), node.initial_parameters(), merged)
            if baton.version < 4 * len(node.workers) - 1:
                following = node.workers[(node.index + 1) % len(node.workers)]
                node.send(following, "baton", version=baton.version + 1)

    node.spawn(runner())
    if node.index == 0:
        node.send(node.rank, "baton")


async def nobody_wants_it(node: Node) -> None:
    """A message that no activity waits for, and one that makes an activity end."""

    async def once() -> None:
        await node.receive("wanted")
        await node.updated(1, node.initial_parameters(), [Contribution(node.rank, 0, 0)])

    node.spawn(once())
    node.send(node.workers[node.index - 1], "unwanted")
    node.send(node.workers[node.index - 1], "wanted")
    node.send(node.workers[node.index - 1], "wanted")


async def only_one_has_them(node: Node) -> None:
    """Worker 0 spawns, late; the others have ended by then."""

    async def late() -> None:
        message = await node.receive("late")
        await node.updated(1, node.initial_parameters(), message.contributions(0))

    if node.index == 0:
        await node.sleep(0.1)
        node.spawn(late())
    else:
        node.send(node.workers[0], "late" if node.index == 1 else "other")


async def two_at_the_inbox(node: Node) -> None:
    """Several activities, the program among them, each wait for messages of their own kind."""
    others = [worker for worker in node.workers if worker != node.rank]

    async def echo(kind: str) -> None:
        while True:
            message = await node.receive(kind)
            node.send(message.sender, "back", version=message.version)

    for kind in ("a", "b", "c"):
        node.spawn(echo(kind))
    for number in range(60):
        node.send(others[number % len(others)], "abc"[number % 3], version=number)
        message = await node.receive("back")
        assert message.version == number
    await node.updated(1, node.initial_parameters(), [Contribution(node.rank, 0, 1)])


async def never_still(node: Node) -> None:
    async def ticking() -> None:
        while True:
            await node.sleep(0.01)

    node.spawn(ticking())
    await node.updated(1, node.initial_parameters(), [Contribution(node.rank, 0, 1)])


async def mistaken_late(node: Node) -> None:
    async def beside() -> None:
        await node.receive("word")
        await node.sleep(0.05)
        raise LookupError("the strategy's own")

    node.spawn(beside())
    if node.index == 0:
        node.send(node.workers[1], "word")


PROGRAMS = [relay_race, nobody_wants_it, only_one_has_them, two_at_the_inbox, never_still, mistaken_late]
UNDER_TEST = {program.__name__: Strategy(program) for program in PROGRAMS}
the_real_main = process.main


def main_that_knows_them(*arguments: Any) -> None:
    STRATEGIES.update(UNDER_TEST)
    the_real_main(*arguments)
