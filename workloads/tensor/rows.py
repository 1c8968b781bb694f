"""Convolutions cut by rows of pixels: each device has all weights, and asks its neighbours for a few rows.

A halo of (k − 1)/2 rows each side is sent first; what needs none of it is computed meanwhile (Dryden et al.
2019, "Improving strong-scaling of CNN training by exploiting finer-grained parallelism", §3.1).
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.section import any_of, divisors
from lockstep.workloads.tensor.cutting import Range, lengths, shares
from lockstep.workloads.tensor.stack import Block, Layer, go_on
from lockstep.workloads.tensor.steps import ARRIVE, COPY, HALO, Compute, Context, Step, Weight, gather

Tensors = tuple[Tensor, ...]


def by_rows(layers: Sequence[Layer], parts: int, part: int, height: int) -> list[Step]:
    """The steps of consecutive convolutions without stride or padding; height: rows of what comes in.

    Behind the last of them its rows are put together; they are flattened after that.
    """
    heights = _heights(layers, height)
    last = heights[-1]
    if last % parts:
        problem = (
            f"with convolutions: halo it must divide the {last} rows behind module {layers[-1].name}: "
            f"{any_of(divisors(last), parts)}; not {parts}"
        )
        raise ScenarioError(problem, key="parallelism.tensor")
    blocks = shares(last, parts)
    wanted: list[
        list[Range]
    ] = []  # of each layer from the last on, the rows that each device's convolution makes
    for layer, before in zip(reversed(layers), reversed(heights[:-1]), strict=True):
        outputs = [(start * _pool(layer), stop * _pool(layer)) for start, stop in blocks]
        wanted.append(outputs)
        reach = _reach(layer)
        blocks = list(pairwise([0, *(start + reach for start, _ in outputs[1:]), before]))
    found: list[Step] = [COPY]
    for place, (layer, outputs) in enumerate(zip(layers, reversed(wanted), strict=True)):
        total = heights[place] - 2 * _reach(layer)
        if place == 0:
            found.append(_from_whole(layer, outputs[part], total))
            continue
        reach = _reach(layer)
        owns = [stop - start + reach * (2 - _sides(one, parts)) for one, (start, stop) in enumerate(outputs)]
        if min(owns) <= 2 * reach:
            problem = f"{parts} devices have too few of {layer.name}'s {total} rows each; take fewer"
            raise ScenarioError(problem, key="parallelism.tensor")
        own = owns[part]
        found += _with_halo(layer, outputs[part], total, part, parts, own)
    return [*found, gather(2, lengths(shares(last, parts)))]


def _sides(part: int, parts: int) -> int:
    """Neighbours of a device."""
    return (part > 0) + (part < parts - 1)


def _reach(layer: Layer) -> int:
    assert isinstance(layer.module, nn.Conv2d)
    return (layer.module.kernel_size[0] - 1) // 2


def _pool(layer: Layer) -> int:
    """Rows that become one behind the convolution."""
    pools = [_rows(module.kernel_size) for module in layer.behind if isinstance(module, nn.MaxPool2d)]
    return pools[0] if pools else 1


def _rows(size: int | tuple[int, ...]) -> int:
    return size if isinstance(size, int) else size[0]


def _blocks_of_rows(layer: Layer) -> bool:
    """Whether what stands behind its convolution makes one row of so many, each by itself."""
    pools = [module for module in layer.behind if isinstance(module, nn.MaxPool2d)]
    return len(pools) <= 1 and all(
        (_rows(pool.stride), _rows(pool.padding), _rows(pool.dilation)) == (_rows(pool.kernel_size), 0, 1)
        and not pool.ceil_mode
        for pool in pools
    )


def _heights(layers: Sequence[Layer], height: int) -> list[int]:
    """Of what comes into each layer, and out of the last."""
    found = [height]
    for layer in layers:
        its = layer.module
        assert isinstance(its, nn.Conv2d)
        plain = (
            its.kernel_size[0] % 2
            and its.stride == (1, 1)
            and its.padding == (0, 0)
            and its.dilation == (1, 1)
        )
        if not plain:
            problem = f"halo can cut convolutions of odd size without stride or padding, not {layer.name}"
            raise ScenarioError(problem, key="parallelism.convolutions")
        if layer.before or not _blocks_of_rows(layer):
            problem = (
                "halo can cut convolutions with nothing before them, and at most one pooling behind each, of "
                f"blocks side by side without padding, not module {layer.name}"
            )
            raise ScenarioError(problem, key="parallelism.convolutions")
        found.append((found[-1] - 2 * _reach(layer)) // _pool(layer))
    return found


def _weights(layer: Layer) -> tuple[Weight, ...]:
    return tuple(map(Weight, layer.weights))


def _behind(layer: Layer, y: Tensor, rows: Range, total: int) -> Tensor:
    pool = _pool(layer)
    # dropout stands behind the pooling
    block = Block(2, rows[0] // pool, rows[1] // pool, total // pool)
    return go_on([module for module in layer.behind if not isinstance(module, nn.Flatten)], y, block)


def _from_whole(layer: Layer, rows: Range, total: int) -> Compute:
    """The first: everybody has all rows."""
    start, stop = rows[0], rows[1] + 2 * _reach(layer)

    def compute(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
        x = go_on(layer.before, state[0])[:, :, start:stop]
        return (_behind(layer, layer.compute(x, *given), rows, total),)

    return Compute(compute, _weights(layer), layer.number, (rows[1] - rows[0]) / total, partial=True)


def _with_halo(layer: Layer, rows: Range, total: int, part: int, parts: int, own: int) -> list[Step]:
    reach, above, below = _reach(layer), part > 0, part < parts - 1
    inside = own - 2 * reach  # rows that its own are enough for

    def edges(state: Tensors, *_: object) -> Tensors:
        (x,) = state
        sent = [x[:, :, :reach]] * above + [x[:, :, -reach:]] * below
        return torch.cat([each.flatten() for each in sent]), x

    def inner(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
        (x,) = state
        return layer.compute(x, *given), x

    def outer(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
        halo, made, x = state
        come = [each.view_as(x[:, :, :reach]) for each in halo.chunk(above + below)]
        top = [torch.cat([come[0], x[:, :, : 2 * reach]], 2)] * above
        bottom = [torch.cat([x[:, :, -2 * reach :], come[-1]], 2)] * below
        made = torch.cat(
            [
                *(layer.compute(each, *given) for each in top),
                made,
                *(layer.compute(each, *given) for each in bottom),
            ],
            2,
        )
        return (_behind(layer, made, rows, total),)

    one, two = (
        Compute(function, _weights(layer), layer.number, count / total, partial=True)
        for function, count in ((inner, inside), (outer, rows[1] - rows[0] - inside))
    )
    return [Compute(edges, (), layer.number), HALO, one, ARRIVE, two]
