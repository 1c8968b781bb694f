"""When a server applies what it was pushed, and when it answers."""

from strategies.node import Node
from strategies.parameter_server import Shard
from strategies.rules import Transformation


async def immediate(node: Node, rule: Transformation) -> None:
    """Asynchronous: apply every push as it arrives, and answer at once (Dean et al. 2012, §4.1)."""
    shard = Shard(node, rule)
    while True:
        message = await node.receive()
        if message.kind == "push":
            await shard.update([message])
        shard.answer(message.sender)


async def barrier(node: Node, rule: Transformation) -> None:
    """Synchronous: apply the mean of one push from every worker, then answer them all.

    The mean is taken in the order of ranks, not of arrival, so that the sum is the same in every run.
    """
    shard = Shard(node, rule)
    for _ in node.workers:
        shard.answer((await node.receive("pull")).sender)
    while True:
        pushes = [await node.receive("push") for _ in node.workers]
        await shard.update(sorted(pushes, key=lambda push: push.sender))
        for worker in node.workers:
            shard.answer(worker)
