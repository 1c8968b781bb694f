"""Parts of a vector: runs of consecutive elements, end to end.

What a server holds is one run where parameters are shared out evenly, and several where it holds whole
variables.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

Part = tuple[slice, ...]
Concatenate = Callable[[Sequence[Any]], Any]


def cut(length: int, shares: Sequence[float]) -> list[slice]:
    """Contiguous parts of a vector in proportion to `shares`; equal ones differ by at most one element."""
    from fractions import Fraction  # here, because a list of strategies has no use for it

    ends = list(accumulate(map(Fraction, shares), initial=Fraction(0)))  # exact: nothing is left over
    bounds = [int(length * end // ends[-1]) for end in ends]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def dealt(runs: Sequence[slice], count: int, most: int | None = None) -> list[Part]:
    """Parts that get the runs in turn; neighbours that one part has are one run.

    Of a run of more than `most` elements all parts get as much. A part may have no run.
    """
    found: list[list[slice]] = [[] for _ in range(count)]
    for number, run in enumerate(runs):
        if most is not None and run.stop - run.start > most:
            for part, piece in zip(found, cut(run.stop - run.start, [1] * count), strict=True):
                part.append(slice(run.start + piece.start, run.start + piece.stop))
        else:
            found[number % count].append(run)
    return [tuple(_joined(part)) for part in found]


def _joined(runs: Sequence[slice]) -> Iterator[slice]:
    start = stop = None
    for run in runs:
        if run.start != stop:
            if stop is not None:
                yield slice(start, stop)
            start = run.start
        stop = run.stop
    if stop is not None:
        yield slice(start, stop)


def length(part: Part) -> int:
    """Elements of a part."""
    return sum(run.stop - run.start for run in part)


def within(part: Part, start: int, stop: int) -> Part:
    """The elements of a part from one to before another, both counted in the part."""
    found, before = [], 0
    for run in part:
        first, last = run.start + max(0, start - before), min(run.stop, run.start + stop - before)
        if first < last:
            found.append(slice(first, last))
        before += run.stop - run.start
    return tuple(found) or (slice(part[-1].stop, part[-1].stop),)


def divided(part: Part, count: int) -> list[Part]:
    """A part cut into nearly equal ones."""
    if count == 1:
        return [part]
    return [within(part, piece.start, piece.stop) for piece in cut(length(part), [1] * count)]


def taken(vector: Any, part: Part, concatenate: Concatenate) -> Any:
    """The elements of a part of a vector: a view, if they follow one another; itself, if they are all."""
    if len(part) > 1:
        return concatenate([vector[run] for run in part])
    (run,) = part
    return vector[run] if run.start or run.stop < len(vector) else vector


def places(parts: Sequence[Part]) -> list[tuple[int, slice]]:
    """Which part has each run of the whole vector, in its order, and where in that part; each once.

    Empty if the parts follow one another, so that they are the whole as they are.
    """
    runs, in_order, end = [], all(len(part) == 1 for part in parts), 0
    for number, part in enumerate(parts):
        inside = 0
        for run in part:
            in_order = in_order and run.start == end
            end, start = run.stop, inside
            inside += run.stop - run.start
            runs.append((run.start, number, slice(start, inside)))
    if in_order:
        return []
    found, end = [], 0
    for begin, number, inside_it in sorted(runs, key=lambda run: run[0]):
        size = inside_it.stop - inside_it.start
        if begin >= end and size:  # else several have the same
            found.append((number, inside_it))
            end = begin + size
    return found


def together(bodies: Sequence[Any], placed: Sequence[tuple[int, slice]], concatenate: Concatenate) -> Any:
    """The whole vector from its parts; `placed`: what `places` says of them."""
    return concatenate([bodies[number][run] for number, run in placed] if placed else bodies)
