"""Work and depth of a gradient: all its operations, and the longest chain in which each needs the one before.

No number of processors takes fewer steps than the depth D, and W / D of them are busy on average in the best
case (Brent 1974). One step is an elementwise function of however many values; the sum or maximum of n values
is ⌈log₂ n⌉ steps, and a dot product of length n one more, for its products. Softmax and normalisation are two
such reductions and four elementwise steps. Moving values is none. The work of products and convolutions is
two operations for a multiply-add, that of all else one for each value that it reads, or writes if those are
more.
"""

from collections.abc import Sequence
from math import ceil, log2
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.workload import Trained, UserTask
from lockstep.workloads import models, tasks, users
from lockstep.workloads.keeping import storage_of
from lockstep.workloads.task import trained

_MADE = ("empty_like", "zeros_like", "ones_like", "full_like", "new_zeros", "new_empty", "new_empty_strided")
_MOVED = ("clone", "copy_", "_to_copy", "cat", "stack", "_unsafe_view", "select_backward", "embedding")


class Depth(NamedTuple):
    """Operations in total, and steps in the longest chain."""

    work: float
    depth: int


def depth(workload: Trained) -> Depth | None:
    """Of the gradient of one mini-batch, counted on the meta device. Raises as `sizes` does.

    None: of a user's task that needs numbers, such as one that takes a value out of a tensor.
    """
    try:
        with users.aside():
            return _depth(workload)
    except ScenarioError:
        raise
    except Exception:
        if isinstance(workload, UserTask):
            return None
        raise


def _depth(workload: Trained) -> Depth:
    look = tasks.look(workload)
    with _Counting() as counted, models.seeded(torch.device("cpu"), 0):
        weights = list(trained(look.model).values())
        lost = look.loss(look.model, look.batch(workload.batch_size))
        torch.autograd.grad(lost, weights, allow_unused=True)
    return Depth(counted.work, counted.depth)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is computed inside it, and how deep each result is, by the memory that it lies in."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.work, self.depth = 0.0, 0
        self._depths: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        reads, writes = _tensors((args, kwargs)), _tensors(found)
        if not reads or not writes or func.is_view or func.overloadpacket.__name__ in _MADE:
            return found
        work, steps = _cost(func.overloadpacket, args, kwargs or {}, found)
        deep = steps + max(self._depths.get(storage_of(each), 0) for each in reads)
        self._depths |= {storage_of(each): deep for each in writes}
        self.work, self.depth = self.work + work, max(self.depth, deep)
        return found


def _tensors(values: Any) -> list[Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, Tensor)]


def _cost(packet: Any, args: Sequence[Any], kwargs: dict[str, Any], found: Any) -> tuple[float, int]:
    """Operations and steps of one operator."""
    name, reads, writes = packet.__name__, _tensors((args, kwargs)), _tensors(found)
    if packet in flop_registry:
        flops = float(flop_registry[packet](*args, **kwargs, out_val=found))
        products = [each for each in writes if each.dim() > 1]  # the gradient of a bias is none
        return flops, 1 + max(_levels(flops / 2 / len(products) / each.numel()) for each in products)
    most = max(each.numel() for each in (*reads, *writes))
    if name in _MOVED:
        return 0.0, 0
    if "softmax" in name:
        dimension = next(each for each in args if isinstance(each, int))
        return most, 2 * _levels(reads[0].shape[dimension]) + 4
    if name == "nll_loss_forward":  # of a sample only its label's is read
        return most, _levels(reads[1].numel()) + 1
    if "norm" in name:
        return most, 2 * _levels(most / writes[-1].numel()) + 4
    return most, max(1, _levels(most / writes[0].numel()))


def _levels(count: float) -> int:
    """Of a tree that adds so many values."""
    return ceil(log2(count)) if count > 1 else 0
