"""What the devices do that have parts of the same layers, between two segments of a pass (tensor.py)."""

from typing import Literal, NamedTuple

Exchange = Literal["all-reduce", "all-gather", "reduce-scatter", "halo"]
"""With what each has come to. "halo": the first half goes to the device before, the second to the one behind,
and theirs come; the next segment needs neither, and is computed meanwhile."""


class Exchanges(NamedTuple):
    """Of a piece of the model: what comes after each of its segments."""

    forward: tuple[Exchange | None, ...] = (None,)
    backward: tuple[Exchange | None, ...] = (None,)
    partial: tuple[slice, ...] = ()  # of its parameters, whose gradients are sums over the group
    again: bool = False  # forward again before backward, because it keeps only what came in
