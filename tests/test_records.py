"""The table of records does not depend on the order of recording."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from analysis.records import Recorder

small = st.integers(0, 2)
rows = st.one_of(
    st.tuples(st.just("gradient"), small, small, small, small),
    st.tuples(st.just("message"), small, small, small, small, small, st.sampled_from(["b", "a"]), small),
    st.tuples(st.just("update"), small, small, small, small, small, small),
    st.tuples(st.just("collective"), small, small, small, small, small),
)


def table(records: list[tuple]) -> pd.DataFrame:
    recorder = Recorder()
    for event, *values in records:
        getattr(recorder, event)(*values)
    return recorder.frame()


@given(st.lists(rows), st.randoms(use_true_random=False))
def test_any_order_of_recording_gives_the_same_table(records: list[tuple], random) -> None:
    shuffled = random.sample(records, len(records))
    frame = table(records)
    pd.testing.assert_frame_equal(frame, table(shuffled), check_exact=True)
    assert frame["end"].is_monotonic_increasing
    assert len(frame) == len(records)


def test_many_messages_at_once_are_as_many_one_by_one() -> None:
    one_by_one, at_once = Recorder(), Recorder()
    start = np.arange(6.0).reshape(2, 3)
    for recorder in (one_by_one, at_once):
        recorder.message(0, 1, 2.0, 2.5, 3.0, "push", 7)
    for step in range(2):
        for node in range(3):
            at = start[step, node]
            one_by_one.message(node, node + 1, at, at + 0.5, at + 1, "ring", 8 + node)
    ranks = np.arange(3)
    at_once.messages(ranks, ranks + 1, start, start + 0.5, start + 1, "ring", 8 + ranks)
    pd.testing.assert_frame_equal(at_once.frame(), one_by_one.frame(), check_exact=True)


def test_no_messages_at_once_leave_no_kind() -> None:
    recorder, none = Recorder(), np.empty(0)
    recorder.messages(none, none, none, none, none, "ring", none)
    assert list(recorder.frame()["kind"].cat.categories) == [""]
