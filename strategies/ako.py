"""Ako: workers send each other parts of what they have learned, a different one each time."""

from collections import deque
from collections.abc import Awaitable
from typing import Annotated, Any

from lockstep.strategies.bounds import Parts
from lockstep.strategies.marks import Keeps
from lockstep.strategies.node import Node
from lockstep.strategies.optimizers import Transformation
from lockstep.strategies.own_model import OwnModel
from lockstep.strategies.parts import cut
from lockstep.strategies.peers import Peers
from lockstep.strategies.updates import sum_of


async def ako(node: Node, optimizer: Transformation, *, partitions: Annotated[Parts, Keeps()] = 2) -> None:
    """Partial gradient exchange: every mini-batch each other worker gets one of the `partitions`.

    Watcharapichat et al. 2016, "Ako: decentralised deep learning with partial gradient exchange" (abstract
    read, algorithm from memory): a worker steps by its own gradient at once, and adds to the same parameters
    what others have learned. In round t it sends worker j partition (t + j) mod p of its last p steps, so
    that after p rounds j has all of them: (n − 1)·M/p bytes a worker and mini-batch, and a delay of at most p
    rounds. Nobody waits, but for its messages of the round before to have left. What has not been sent in
    the end is sent then, and what comes later is added too: models end alike, to rounding. With sgd a step is
    −η·gradient; each counts in full, as with `asynchronous`. Theirs chooses p for the bandwidth there is; it
    is the scenario's here. Failure: see `OwnModel`; what was on its way, or not sent yet, is lost, so that
    models stay apart by that. Who is back has not heard what the others have learned meanwhile: the next
    worker, in the order of ranks, sends it its model, which takes the place of its own.
    """
    model = OwnModel(node, optimizer)
    places = cut(len(model.parameters), [1] * partitions)
    others = Peers(node)
    steps: deque[Any] = deque(maxlen=partitions)  # the last own ones
    # own steps that are there
    sent = {(to, part): model.version for to in others.there for part in range(partitions)}
    leaving: list[Awaitable[None]] = []

    def send(to: int, part: int) -> list[Awaitable[None]]:
        new = model.version - sent[to, part]
        if not new:
            return []
        sent[to, part] = model.version
        body = sum_of([step[places[part]] for step in list(steps)[-new:]])
        return [node.send(to, "partial", body, version=model.version - 1, part=part)]

    async def hear() -> None:
        message = await node.receive()
        if message.kind == "partial":
            await model.add(message, places[message.part])
        elif message.kind == "model":
            model.weight = 0.0
            await model.merge(message)
            model.weight = 1.0
        else:
            if others.hear(message):
                node.send(message.sender, "model", model.parameters, version=model.version)
            sent.update({(message.sender, part): model.version for part in range(partitions)})

    async def hear_late() -> None:
        while True:
            await hear()

    while await node.next_batch_available():
        while node.arrived():
            await hear()
        gradient = await node.gradient(model.parameters)
        while node.arrived():
            await hear()
        steps.append(0 + await model.step(gradient))
        for left in leaving:
            await left
        leaving = [
            left
            for to in others.there
            for left in send(to, (model.version + node.workers.index(to)) % partitions)
        ]
    for to in others.there:
        for part in range(partitions):
            send(to, part)
    await model.end()
    node.spawn(hear_late())
