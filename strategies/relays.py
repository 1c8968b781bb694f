"""Relays between workers and a server: they sum what comes from below, and hand the answer down.

A relay has one parent, its shard's server or another relay, so a tree of any depth is made of one program
(Rudra's leaf servers: Gupta, Zhang and Wang 2016, §3.3). The server sees its children's pushes only.
"""

from collections.abc import Sequence
from typing import Any

from lockstep.strategies.bounds import Chunks
from lockstep.strategies.node import Message, Node
from lockstep.strategies.updates import sum_of


async def gather(node: Node) -> None:
    """For a barrier: wait for every child, push the sum, and hand the answer to all of them."""
    await gather_in_chunks(node)


async def gather_in_chunks(node: Node, *, chunks: Chunks = 1) -> None:
    """For a barrier in chunks: wait for every child, push the sum, and hand the answer to all of them."""
    (parent,) = node.parents
    for _ in node.children:
        await node.receive("pull")
    node.send(parent, "pull")
    for _ in range(chunks):
        _hand_down(node, await node.receive("parameters", parent), node.children)
    arrived: dict[int, list[Message]] = {}
    while True:
        message = await node.receive()
        if message.kind == "parameters":
            _hand_down(node, message, node.children)
        if message.kind != "push":
            continue
        pushes = arrived.setdefault(message.part, [])
        pushes.append(message)
        if len(pushes) == len(node.children):
            del arrived[message.part]
            await _push_sum(node, sorted(pushes, key=lambda push: push.sender))


async def combine(node: Node) -> None:
    """For a server that answers at once: push the sum of all that has come since the last answer.

    One exchange with the parent is under way at a time; pushes that come meanwhile are in the next one. The
    relay leaves when all its children have.
    """
    (parent,) = node.parents
    members = set(node.children)
    while True:
        messages = [await node.receive()]
        while node.arrived():
            messages.append(await node.receive())
        leaving = {message.sender for message in messages if message.kind == "leave"}
        messages = [message for message in messages if message.kind != "leave"]
        pushes = [message for message in messages if message.kind in ("push", "commit")]
        if pushes:
            await _push_sum(node, pushes)
        elif messages:
            node.send(parent, "pull")
        if messages:
            answer = await node.receive("parameters", parent)
            _hand_down(node, answer, [message.sender for message in messages if message.kind != "commit"])
        members -= leaving
        if leaving and not members:
            node.send(parent, "leave")


async def _push_sum(node: Node, pushes: list[Message]) -> None:
    body: Any = pushes[0].body
    nbytes = 3 * (len(pushes) - 1) * body.nbytes
    total = await node.apply(lambda: sum_of([push.body for push in pushes]), nbytes)
    sources = tuple(source for push in pushes for source in push.pushed_by)
    node.send(node.parents[0], "push", total, part=pushes[0].part, sources=sources)


def _hand_down(node: Node, answer: Message, children: Sequence[int]) -> None:
    for child in children:
        node.send(child, "parameters", answer.body, version=answer.version, part=answer.part)
