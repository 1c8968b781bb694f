"""The step that a server takes by what it was pushed, and how much memory that touches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lockstep.strategies.corrections import Arrival, UpdateRule
from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Vector
from lockstep.strategies.touched import Counting


def stepped(
    rule: UpdateRule,
    updates: Sequence[Any],
    plain: Sequence[Any],
    weights: Sequence[float] | None,
    over: float,
    state: Any,
    parameters: Any,
) -> tuple[Any, Any]:
    """The step from the weighted sum of corrected updates ÷ `over`, and the optimizer's state after it.

    `plain`: the updates as they were, from which some optimizers take their size.
    """
    apart = rule.correction is not None and rule.correction.is_rate and rule.optimizer.normalises
    size = _mean(plain, weights, over) if apart else None
    return rule.optimizer.step(_mean(updates, weights, over), state, parameters, size)


def _mean(vectors: Sequence[Any], weights: Sequence[float] | None, over: float) -> Multiple:
    if weights is not None:
        vectors = [vector * weight for vector, weight in zip(vectors, weights, strict=True)]
    return Multiple(1 / over, sum_of(vectors))


def trials(
    rule: UpdateRule, parameters: Any, push: Callable[[], Any], pushes: int, weighted: bool = False
) -> Iterator[Any]:
    """The parameters after one update with so many pushes, two, …: on stand-ins, of a server that is none."""
    state, seen = rule.optimizer.initial, rule.correction.initial if rule.correction else None
    weights = [2.0] * pushes if weighted else None
    while True:
        plain = [push() for _ in range(pushes)]
        updates = [*plain]
        if rule.correction:
            arrival = Arrival(1, parameters, push())
            for number, update in enumerate(updates):
                updates[number], seen = rule.correction.correct(update, arrival, seen)
        step, state = stepped(rule, updates, plain, weights, 2, state, parameters)
        parameters = parameters + step
        yield parameters


def passes_of(rule: UpdateRule, pushes: int, weighted: bool) -> int:
    """How often an update with so many pushes reads or writes a vector as long as the shard."""
    tally = [0]
    updates = trials(rule, Counting(tally), lambda: Counting(tally), pushes, weighted)
    next(updates)  # the moments are vectors from the second update on
    tally[0] = 0
    next(updates)
    return tally[0]


def sum_of(bodies: Sequence[Any]) -> Vector:
    """The sum of vectors, in the order given."""
    total = bodies[0]
    for body in bodies[1:]:
        total = total + body
    return total  # type: ignore[no-any-return]
