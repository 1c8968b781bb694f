"""What each device has of a piece in which devices meet: `parallelism.tensor`, `workload.batch_norm`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from lockstep.job.stages import Piece, Segment
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios import workload as described
from lockstep.scenarios.workload import Trained
from lockstep.workloads.layers import Layer, layers


def parts_of(scenario: Scenario, pieces: Sequence[Piece], micro_batches: int) -> list[list[Piece]]:
    """The pieces of the device that has each part of the layers: `pieces`, where nobody shares them.

    Those in which replicas meet to normalise batches have segments, too.
    Raises ScenarioError (keys below ``parallelism``) where they cannot be shared so.
    """
    split, workload = scenario.split, scenario.workload
    if split.tensor == 1 and not workload.synchronised:
        return [list(pieces)]
    if split.parts == 1 and not workload.synchronised:  # everyone has all of it
        return [list(pieces)] * split.tensor
    match workload:
        case described.Sizes():
            if split.convolutions != "all-reduce":
                said = "sizes do not say what is a convolution; remove it"
                raise ScenarioError(said, key="parallelism.convolutions")
            found = [[_uniform(scenario, piece, part) for piece in pieces] for part in range(split.parts)]
        case described.Data() | described.Transformer() | described.UserTask():
            samples = workload.batch_size // micro_batches
            of_model = layers(workload, len(pieces), samples)
            found = [
                list(_counted(scenario, workload, pieces, of_model, part, micro_batches))
                for part in range(split.parts)
            ]
        case _:
            said = "what this workload's layers are made of is not known; must be 1"
            raise ScenarioError(said, key="parallelism.tensor")
    return found * split.redundancy


def _uniform(scenario: Scenario, piece: Piece, part: int) -> Piece:
    """Of sizes only: a part of everything, and two all-reduces of what crosses a boundary a layer, each way.

    With sequence parallelism each of them is a reduce-scatter and an all-gather, which move as much.
    """
    split, workload = scenario.split, scenario.workload
    assert isinstance(workload, described.Sizes)
    nbytes, parts = int(workload.activation or 0), split.parts
    (own,), count = piece.parameters, piece.layers.stop - piece.layers.start
    length = own.stop - own.start
    bounds = [own.start + length * place // parts for place in (part, part + 1)]
    segments: tuple[Segment, ...]
    if split.sequence:
        halves = [Segment(0.0, "all-gather", nbytes // parts), Segment(0.5 / count, "reduce-scatter", nbytes)]
        segments = tuple(halves * 2 * count)
    else:
        segments = (Segment(0.5 / count, "all-reduce", nbytes),) * 2 * count
    less = parts if split.sequence else 1
    return replace(
        piece,
        parameters=(slice(*bounds),),
        forward=piece.forward / parts,
        inputs=piece.inputs / parts,
        weights=piece.weights / parts,
        activation=piece.activation // less,
        before=piece.before // less,
        kept=piece.kept // less,
        full=piece.full // less,
        there=segments,
        back=segments,
    )


def _counted(
    scenario: Scenario,
    workload: Trained,
    pieces: Sequence[Piece],
    of_model: Sequence[Layer],
    part: int,
    micro_batches: int,
) -> Iterator[Piece]:
    """Of a model whose layers are known."""
    from lockstep.workloads.tensor.planning import planned

    split = scenario.split
    bounds = (0, *(piece.layers.stop for piece in pieces))
    found = planned(workload, bounds, split, part, workload.batch_size // micro_batches)
    timed = all(layer.seconds is not None for layer in of_model)
    way = "s" if timed else "flops"
    for piece, its in zip(pieces, found, strict=True):
        cut = its.cut
        forward, backward = (
            [cut.work(turn, partial(_work, of_model, f"{name}_{way}")) for turn in turns]
            for name, turns in (("forward", cut.forward), ("backward", cut.backward))
        )
        whole, back = (
            sum(getattr(layer, f"{name}_{way}") for layer in of_model[piece.layers])
            for name in ("forward", "backward")
        )
        less, less_back = sum(forward) / (whole or 1.0), sum(backward) / (back or 1.0)
        kept = its.kept * micro_batches
        yield replace(
            piece,
            parameters=cut.ranges,
            forward=piece.forward * less,
            inputs=piece.inputs * less_back,
            weights=piece.weights * less_back,
            activation=its.activation * micro_batches,
            before=its.before * micro_batches,
            kept=its.before * micro_batches if split.recompute else kept,
            full=kept,
            there=tuple(_segments(forward, [t.exchange for t in cut.forward], its.forward, micro_batches)),
            back=tuple(_segments(backward, [t.exchange for t in cut.backward], its.backward, micro_batches)),
            partial=cut.partial,
        )


def _work(of_model: Sequence[Layer], name: str, layer: int) -> float:
    return float(getattr(of_model[layer], name))


def _segments(
    work: Sequence[float], exchanges: Sequence[object], nbytes: Sequence[int], micro_batches: int
) -> Iterator[Segment]:
    total = sum(work) or 1.0
    for own, exchange, size in zip(work, exchanges, nbytes, strict=True):
        yield Segment(own / total, exchange, size * micro_batches)  # type: ignore[arg-type]
