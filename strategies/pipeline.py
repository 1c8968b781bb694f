"""The gradient of a device's slice of the model, pass by pass: one driver for all orders (orders.py).

What a stage's piece of the model makes of a micro-batch goes to whoever has the next piece, and the gradient
of the loss with respect to it (the error) comes back, with the loss.
"""

from collections.abc import Iterable

from lockstep.strategies import tensor
from lockstep.strategies.node import Message, Node, Stage, Vector
from lockstep.strategies.orders import Pass


async def gradient(node: Node, parameters: Vector, passes: Iterable[Pass]) -> tuple[Vector, float]:
    """Do the passes of one mini-batch; the gradient of this device's slice, and the loss, known to all
    stages.

    Gradients of micro-batches are added in the order of the passes.
    """
    sums: list[Vector | None] = [None] * node.stage.chunks
    own = [parameters] if node.stage.chunks == 1 else [parameters[part] for part in node.stage.pieces]
    losses: dict[int, float] = {}
    for kind, micro, chunk in passes:
        if kind == "forward":
            await forward(node, own[chunk], micro, chunk)
            continue
        if kind == "backward-inputs":
            losses[micro] = await backward_inputs(node, micro, chunk)
            continue
        if kind == "backward":
            added, losses[micro] = await backward(node, micro, chunk)
        else:
            added = await node.backward_weights(micro, chunk)
        total = sums[chunk]
        sums[chunk] = added if total is None else total + added
    loss = sum(losses[micro] for micro in range(node.micro_batches))
    whole = [await tensor.completed(node, part, chunk) for chunk, part in enumerate(sums) if part is not None]
    return node.concatenate(whole), loss


async def forward(node: Node, parameters: Vector, micro: int, chunk: int = 0) -> None:
    """Forward through one piece: from what the piece before has made of a micro-batch, on to the next."""
    before, after = piece_before(node.stage, chunk), piece_after(node.stage, chunk)
    inputs = None
    if before is not None:
        inputs = (await node.receive("activation", before[0], _part(node, micro, chunk))).body
    output = await tensor.forward(node, parameters, micro, inputs, chunk)
    if after is not None:
        node.send(after[0], "activation", output, part=_part(node, micro, after[1]))


async def backward(node: Node, micro: int, chunk: int = 0) -> tuple[Vector, float]:
    """Backward through one piece, and on to the piece before: the weights' gradient, and the loss."""
    behind = await _error_behind(node, micro, chunk)
    error, found = await tensor.backward(node, micro, None if behind is None else behind.body, chunk)
    return found, _send_back(node, error, micro, chunk, behind)


async def backward_inputs(node: Node, micro: int, chunk: int = 0) -> float:
    """As `backward`, but for the weights' gradient, which can wait; the loss."""
    behind = await _error_behind(node, micro, chunk)
    error = await tensor.backward_inputs(node, micro, None if behind is None else behind.body, chunk)
    return _send_back(node, error, micro, chunk, behind)


async def _error_behind(node: Node, micro: int, chunk: int) -> Message | None:
    """From the piece behind, with the micro-batch's part of the loss; None behind the last one."""
    after = piece_after(node.stage, chunk)
    return None if after is None else await node.receive("error", after[0], _part(node, micro, chunk))


def _send_back(node: Node, error: Vector | None, micro: int, chunk: int, behind: Message | None) -> float:
    loss = node.loss if behind is None else behind.weight
    if before := piece_before(node.stage, chunk):
        node.send(before[0], "error", error, part=_part(node, micro, before[1]), weight=loss)
    return loss


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
    """The number by which a receiver tells messages of one mini-batch apart: below 0 (see `Message`)."""
    return -1 - micro * node.stage.chunks - chunk
