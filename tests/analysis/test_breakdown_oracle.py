"""Where workers' time went, against an oracle that looks at instants."""

from itertools import pairwise
from math import nan
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.analysis.breakdown import shares
from lockstep.analysis.records import Recorder

SPAN = st.tuples(st.floats(0, 20), st.floats(0, 20)).map(sorted)
THREE = st.tuples(st.floats(0, 20), st.floats(0, 20), st.floats(0, 20)).map(sorted)
WORKER, NODE = st.integers(0, 2), st.integers(0, 4)  # three workers, two servers


def by_instants(
    gradients: list[Any],
    work: list[Any],
    messages: list[Any],
    collectives: list[Any],
    begin: float,
    finish: float,
) -> np.ndarray:
    """The definition, word by word: what each of three workers did between any two neighbouring times."""
    spans = [span for *_, span in [*gradients, *work]] + [span for _, _, span in messages]
    spans += [span for _, span, _ in collectives]
    times = sorted({begin, finish, *(min(max(t, begin), finish) for s in spans for t in s if t == t)})
    entered = {
        number: max(span[0] for _, span, n in collectives if n == number) for *_, number in collectives
    }
    found = np.zeros((3, 5))
    for a, b in pairwise(times):
        now = (a + b) / 2
        for w in range(3):
            if any(worker == w and start < now < end for worker, (start, end) in gradients):
                part = 0
            elif any(worker == w and start < now < end for worker, (start, end) in work):
                part = 1
            elif any(sender == w and start < now < left for sender, _, (start, left, _) in messages) or any(
                worker == w and entered[number] < now < span[1] for worker, span, number in collectives
            ):
                part = 2
            else:
                under_way = any(w in ends and s[0] < now < s[2] for *ends, s in messages)
                somebody_works = any(start < now < end for _, (start, end) in [*gradients, *work])
                part = 3 if under_way or not somebody_works else 4
            found[w, part] += b - a
    return found / (finish - begin)


@pytest.mark.slow
@given(
    st.lists(st.tuples(WORKER, SPAN), max_size=6),
    st.lists(st.tuples(WORKER, SPAN), max_size=4),
    st.lists(st.tuples(NODE, NODE, THREE, st.booleans()), max_size=8),
    st.lists(st.tuples(WORKER, SPAN, st.integers(0, 2)), max_size=4),
    st.floats(0, 5),
    st.floats(0.01, 15),
)
def test_each_workers_time_is_what_the_definition_says(
    gradients: list[Any],
    work: list[Any],
    messages: list[Any],
    collectives: list[Any],
    begin: float,
    duration: float,
) -> None:
    recorder = Recorder()
    for step, (worker, (a, b)) in enumerate(gradients):
        recorder.gradient(worker, a, b, step)
    for worker, (a, b) in work:
        recorder.work(worker, a, b, "apply")
    messages = [(s, to, (a, left if known else nan, b)) for s, to, (a, left, b), known in messages]
    for sender, to, (a, left, b) in messages:
        recorder.message(sender, to, a, left, b, "push", 8)
    for worker, (a, b), number in collectives:
        recorder.collective(worker, a, b, number, 8)
    columns = recorder.columns()
    records = columns.frame()
    found = shares(records, 3, begin, begin + duration).T
    with patch("lockstep.analysis.breakdown.AT_ONCE", 2):  # some workers after the others: the same bits
        for each in (records, columns):
            np.testing.assert_array_equal(shares(each, 3, begin, begin + duration).T, found, strict=True)
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=1e-12)
    expected = by_instants(gradients, work, messages, collectives, begin, begin + duration)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
