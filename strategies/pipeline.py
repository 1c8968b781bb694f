"""The gradient of a device's slice of the model, pass by pass: one driver for all orders (orders.py).

What a stage's piece of the model makes of a micro-batch goes to whoever has the next piece, and the gradient
of the loss with respect to it (the error) comes back, with the loss.
"""

from collections.abc import Iterable

from lockstep.strategies.node import Node, Stage, Vector
from lockstep.strategies.orders import Pass


async def gradient(node: Node, parameters: Vector, passes: Iterable[Pass]) -> tuple[Vector, float]:
    """Do the passes of one mini-batch; the gradient of this device's slice, and the loss, known to all
    stages.

    Gradients of micro-batches are added in the order of the passes.
    """
    sums: list[Vector | None] = [None] * node.stage.chunks
    losses: dict[int, float] = {}
    for kind, micro, chunk in passes:
        if kind == "forward":
            await forward(node, parameters, micro, chunk)
            continue
        error = None
        if kind != "backward-weights":
            error, losses[micro] = await _backward_inputs(node, micro, chunk)
        if kind != "backward-inputs":
            added = await node.backward_weights(micro, chunk)
            total = sums[chunk]
            sums[chunk] = added if total is None else total + added
        if kind != "backward-weights":
            _send_back(node, error, micro, chunk, losses[micro])
    loss = sum(losses[micro] for micro in range(node.micro_batches))
    return node.concatenate([part for part in sums if part is not None]), loss


async def forward(node: Node, parameters: Vector, micro: int, chunk: int = 0) -> None:
    """Forward through one piece: from what the piece before has made of a micro-batch, on to the next."""
    before, after = piece_before(node.stage, chunk), piece_after(node.stage, chunk)
    inputs = None
    if before is not None:
        inputs = (await node.receive("activation", before[0], _part(node, micro, chunk))).body
    output = await node.forward(parameters, micro, inputs, chunk)
    if after is not None:
        node.send(after[0], "activation", output, part=_part(node, micro, after[1]))


async def backward(node: Node, micro: int, chunk: int = 0) -> Vector:
    """Backward through one piece, both parts, and then back to the piece before; the weights' gradient."""
    error, loss = await _backward_inputs(node, micro, chunk)
    found = await node.backward_weights(micro, chunk)
    _send_back(node, error, micro, chunk, loss)
    return found


async def _backward_inputs(node: Node, micro: int, chunk: int) -> tuple[Vector | None, float]:
    """The error for the piece before, and the micro-batch's part of the loss."""
    after = piece_after(node.stage, chunk)
    if after is None:
        error = await node.backward_inputs(micro, None, chunk)
        return error, node.loss
    message = await node.receive("error", after[0], _part(node, micro, chunk))
    return await node.backward_inputs(micro, message.body, chunk), message.weight


def _send_back(node: Node, error: Vector | None, micro: int, chunk: int, loss: float) -> None:
    if before := piece_before(node.stage, chunk):
        node.send(before[0], "error", error, part=_part(node, micro, before[1]), weight=loss)


def piece_before(stage: Stage, chunk: int) -> tuple[int, int] | None:
    """Who has the piece of the model before this one, a rank and its chunk; None before the first."""
    if stage.index:
        return stage.peers[stage.index - 1], chunk
    return (stage.peers[-1], chunk - 1) if chunk else None


def piece_after(stage: Stage, chunk: int) -> tuple[int, int] | None:
    """Who has the piece of the model behind this one; None behind the last."""
    if stage.index < stage.count - 1:
        return stage.peers[stage.index + 1], chunk
    return (stage.peers[0], chunk + 1) if chunk < stage.chunks - 1 else None


def _part(node: Node, micro: int, chunk: int) -> int:
    """The number by which a receiver tells messages of one mini-batch apart."""
    return micro * node.stage.chunks + chunk
