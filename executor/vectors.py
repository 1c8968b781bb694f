"""What a real node does with several vectors at once, in as few passes over the memory as can be."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.strategies.multiple import multiple


def concatenate(parts: Sequence[Any]) -> Any:
    """Vectors end to end."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def add_parts(vector: Any, slices: Sequence[slice], parts: Sequence[Any]) -> Tensor:
    """A vector plus one, or a multiple of one, at each of its slices: sums are made where they are to be."""
    total = torch.empty_like(vector)
    for place, part in zip(slices, map(multiple, parts), strict=True):
        torch.add(vector[place], part.vector, alpha=part.factor, out=total[place])
    return total
