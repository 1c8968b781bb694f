"""What each device has of each piece of a real model whose layers are cut, found without computing."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn

from lockstep.scenarios.parallelism import Parallelism
from lockstep.scenarios.workload import Trained
from lockstep.workloads import models, tasks, tracing
from lockstep.workloads.classifier import Classifier
from lockstep.workloads.task import Loss, inputs, trained
from lockstep.workloads.tensor import recipes
from lockstep.workloads.tensor.cut import Cut
from lockstep.workloads.tensor.part import CutPart
from lockstep.workloads.tensor.steps import HALO, Crossing, Turn
from lockstep.workloads.tracing import Piece


class Planned(NamedTuple):
    """Bytes are of so many samples."""

    cut: Cut
    forward: tuple[int, ...]  # bytes that each segment of the forward pass comes to
    backward: tuple[int, ...]
    before: int  # bytes that come in; of samples 0
    activation: int  # bytes that go on; of the loss 0
    kept: int  # bytes between the passes


def cuts(
    model: nn.Module,
    pieces: Sequence[Piece],
    bounds: Sequence[int],
    split: Parallelism,
    part: int,
    synchronised: bool,
) -> list[Cut]:
    """A device's pieces: piece p has the layers from bounds[p] to before bounds[p + 1].

    synchronised: nobody shares layers, but batches are normalised over all replicas.
    """
    shapes, owns = (
        [weight.shape for weight in trained(model).values()],
        [range(*ends) for ends in pairwise(bounds)],
    )
    if synchronised:
        return [Cut(recipes.synchronised(pieces, own), shapes, 1, 0) for own in owns]
    return [Cut(recipes.recipe(model, pieces, own, split, part), shapes, split.parts, part) for own in owns]


def computed(
    learner: Classifier,
    pieces: Sequence[Piece],
    bounds: Sequence[int],
    micro_batches: int,
    split: Parallelism,
    part: int,
) -> Iterator[CutPart]:
    """What a device computes of each piece, with the data of a learner."""

    def computing() -> AbstractContextManager[None]:
        return learner.precision.computing(learner.device)

    def loss(micro: Any) -> Loss:
        return learner.loss_of(micro.replica, micro.step, micro.number)

    def samples(micro: Any) -> tuple[torch.Tensor, Any]:
        batch = learner.batch(micro.replica, micro.step, micro.number, micro_batches)
        with computing():
            return inputs(loss(micro), batch), batch

    def random(micro: Any, layer: int) -> AbstractContextManager[None]:
        return learner.random(micro.replica, micro.step, micro.number, micro_batches, layer)

    for cut, start in zip(
        cuts(learner.module, pieces, bounds, split, part, learner.synchronised), bounds, strict=False
    ):
        shape = cut_shape(pieces[start].inputs, split, cut)
        # a sum over devices, that layers which are cut end with, is float32
        dtype = pieces[start].dtype if learner.synchronised else torch.float32
        recompute = split.recompute
        yield CutPart(
            *(cut, learner.device, samples, loss, random, micro_batches, recompute, shape, dtype, computing)
        )


@cache
def planned(
    workload: Trained, bounds: tuple[int, ...], split: Parallelism, part: int, samples: int
) -> list[Planned]:
    """The pieces of a device that has a part of the layers. Raises ScenarioError if they cannot be cut so."""
    look = tasks.look(workload)
    model, loss, batch = look.model, look.loss, look.batch(samples)
    x = inputs(loss, batch)
    pieces = tracing.pieces(model, x)
    whole = torch.cat([weight.detach().flatten() for weight in trained(model).values()])
    found = []
    for cut, start in zip(
        cuts(model, pieces, bounds, split, part, workload.synchronised), bounds, strict=False
    ):
        shape = cut_shape(pieces[start].inputs, split, cut)
        device = CutPart(cut, x.device, lambda _: (x, batch), lambda _: loss, _seeded, 1, False, shape)
        parameters = whole[: cut.length]
        first = None if cut.first else x.new_empty(samples * torch.Size(shape).numel(), dtype=torch.float32)
        given, forward, halo = first, [], 0
        for number, turn in enumerate(cut.forward):
            out = device.forward(parameters, 0, given, number)
            forward.append(out.nbytes)
            halo = len(out) if turn.exchange == "halo" else halo
            given = _come(cut, turn, out, halo)
        kept, behind = device.kept(0), device.behind(0)
        backward = [_error(cut, turn, behind) for turn in cut.backward]
        activation = 0 if cut.last or given is None else given.nbytes
        if not cut.first and first is not None:
            backward[-1] = first.nbytes
        found.append(
            Planned(
                cut, tuple(forward), tuple(backward), 0 if first is None else first.nbytes, activation, kept
            )
        )
    return found


def _seeded(*_: object) -> AbstractContextManager[None]:
    return models.seeded(torch.device("cpu"), 0)


def cut_shape(inputs: Sequence[int], split: Parallelism, cut: Cut) -> tuple[int, ...]:
    """What comes into a piece, of one sample: where sequences are cut a device has its own positions."""
    if not split.sequence or cut.first:
        return tuple(inputs)
    return inputs[0] // cut.parts, *inputs[1:]


def _come(cut: Cut, turn: Turn, out: torch.Tensor, halo: int) -> torch.Tensor | None:
    """What the next segment is given, by its size; halo: elements of the rows that are under way."""
    step = cut.steps[turn.steps[-1]]
    if turn.exchange == "halo":
        return None
    if isinstance(step, Crossing) and step.ends[0]:  # rows come, as many as have been sent
        return out.new_empty(halo)
    if turn.exchange == "all-gather":
        assert isinstance(step, Crossing)
        return out.new_empty(len(out) // step.sizes[cut.part] * sum(step.sizes))
    if turn.exchange == "reduce-scatter":
        return out.new_empty(len(out) // cut.parts)
    return out


def _error(cut: Cut, turn: Turn, behind: dict[int, int]) -> int:
    """Bytes that a segment of the backward pass comes to, if something is exchanged after it."""
    if turn.exchange is None:
        return 0
    place = turn.steps[-1]
    if turn.exchange == "halo":
        place = max(at for at in behind if at < place and cut.steps[at] is HALO)
    return behind[place]
