"""Where a sequence of layers is cut into stages, so that the largest stage is as small as can be."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.parallelism import layers_to_list
from lockstep.workloads.layers import Layer

By = Literal["flops", "parameters", "time", "memory"]
Memory = Callable[[int, int, int], float]  # (stage, its first layer, the one after its last) -> bytes
_Matrix = NDArray[np.float64]  # [start, stop]: of the layers from one to before the other


def cut(
    layers: Sequence[Layer],
    stages: int,
    by: By | Sequence[int] = "flops",
    *,
    speeds: Sequence[float] = (),
    memory: Memory | None = None,
    limits: Sequence[float] = (),
    chunks: int = 1,
) -> tuple[int, ...]:
    """Return the first layer of each stage, and the number of layers: `stages` + 1 rising numbers from 0 on.

    Each stage has at least one layer. The largest stage is the smallest possible one; of several such cuts,
    the last boundary comes as early as can be, then the one before it, and so on. A stage is as large as, by

    - `flops`: the work of both passes; of layers of which only the seconds are known, those;
    - `parameters`: their number;
    - `time`: the seconds of both passes if those of all layers are known, else the work; divided by the
      `speeds`, one a stage (all 1 if not given). Sending activations is not counted;
    - `memory`: what `memory` says, divided by the `limits`, bytes, one a stage (all 1 if not given);
    - a list: no matter how large; these are the first layers of stages 1, 2, …

    With `limits`, no stage takes more `memory` than its own. `chunks`: how many of these stages, then pieces
    of the model, are on the same device; nothing but messages depends on it.

    Raises `ScenarioError`: with key `parallelism.pipeline` or `parallelism.chunks` for more stages than
    layers, with `parallelism.cut` for a list that cannot be, and where no cut keeps to the limits.
    """
    count = len(layers)
    if stages > count:
        raise _too_many(layers, stages, chunks)
    takes = [_matrix(memory, stage, count) for stage in range(stages)] if memory else []
    if not isinstance(by, str):
        bounds = _listed(by, stages, count)
        alone = np.full((stages, count + 1, count + 1), inf)
        alone[range(stages), bounds[:-1], bounds[1:]] = 0  # the only stages that there can be
        sizes = list(alone)
    elif by == "memory":
        sizes = [each / limit for each, limit in zip(takes, limits or [1.0] * stages, strict=True)]
    else:
        known = all(layer.seconds is not None for layer in layers)
        work = "seconds" if known and (by == "time" or not any(layer.flops for layer in layers)) else "flops"
        of = "parameters" if by == "parameters" else work
        up_to = np.array([0.0, *accumulate(getattr(layer, of) for layer in layers)])
        sizes = [
            (up_to - up_to[:, None]) / (speed if by == "time" else 1) for speed in (speeds or [1.0] * stages)
        ]
    if limits:
        sizes = [
            np.where(each > limit, inf, size) for size, each, limit in zip(sizes, takes, limits, strict=True)
        ]
    return _best(sizes)


def _best(sizes: Sequence[_Matrix]) -> tuple[int, ...]:
    """Dynamic programming; `most[stop]` is the largest of the stages so far, that end before layer `stop`."""
    count = len(sizes[0]) - 1
    most = np.array([0.0] + [inf] * count)
    chosen = []  # of each stage, where it starts if it stops there
    for size in sizes:
        largest = np.maximum(most[:, None], size)
        largest[np.tril_indices(count + 1)] = inf  # at least one layer
        chosen.append(largest.argmin(0))
        most = largest.min(0)
    if most[count] == inf:
        problem = f"no cut into {len(sizes)} stages keeps each of them within the memory of its device"
        raise ScenarioError(problem, key="parallelism.cut")
    bounds = [count]
    for starts in reversed(chosen):
        bounds.append(int(starts[bounds[-1]]))
    return tuple(reversed(bounds))


def _matrix(memory: Memory, stage: int, count: int) -> _Matrix:
    found = np.zeros((count + 1, count + 1))
    for start in range(count):
        for stop in range(start + 1, count + 1):
            found[start, stop] = memory(stage, start, stop)
    return found


def _listed(begins: Sequence[int], stages: int, count: int) -> tuple[int, ...]:
    if len(begins) != stages - 1:
        raise ScenarioError(f"{layers_to_list(stages)}; not {len(begins)}", key="parallelism.cut")
    bounds = (0, *begins, count)
    if any(one >= two for one, two in pairwise(bounds)):
        problem = f"must be numbers of layers that rise, from 1 to {count - 1}, not {list(begins)}"
        raise ScenarioError(problem, key="parallelism.cut")
    return bounds


def _too_many(layers: Sequence[Layer], pieces: int, chunks: int) -> ScenarioError:
    count, stages = len(layers), pieces // chunks
    if count < stages:
        key, said = "pipeline", f"must be at most {count}, as many as there are layers, not {stages}"
    else:
        key, said = (
            "chunks",
            f"must be at most {count // stages}, not {chunks}: there are {count} layers, and ",
        )
        said += f"pipeline × chunks = {stages} × {chunks} makes {pieces} pieces"
    tied = next((layer for layer in layers if layer.tied), None)
    if tied is not None:
        said += f"; {tied.name} cannot be cut, because {tied.tied} is used at two places in it"
    return ScenarioError(said, key=f"parallelism.{key}")
