"""The table of records: it does not depend on the order of recording, and several are joined."""

import tracemalloc
from math import nan
from pathlib import Path
from tempfile import NamedTemporaryFile
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.analysis.columns import EVENTS
from lockstep.analysis.given import framed
from lockstep.analysis.parquet import write
from lockstep.analysis.records import Recorder, has, join, of
from lockstep.analysis.records import values as values_of

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


@pytest.mark.slow
@given(st.lists(rows), st.randoms(use_true_random=False))
def test_any_order_of_recording_gives_the_same_table(records: list[tuple], random) -> None:
    shuffled = random.sample(records, len(records))
    frame = table(records)
    pd.testing.assert_frame_equal(frame, table(shuffled), check_exact=True)
    assert frame["end"].is_monotonic_increasing
    assert len(frame) == len(records)


@given(st.lists(rows), st.integers(1, 4))
def test_a_table_in_pieces_is_the_same(records: list[tuple], at_once: int) -> None:
    whole, recorder = table(records), Recorder()
    for event, *values in records:
        getattr(recorder, event)(*values)
    with patch("lockstep.analysis.columns.AT_ONCE", 2):
        columns = recorder.columns()
        pieces = [framed(piece, {}) for piece in columns.pieces(at_once)]
    assert {*map(len, pieces[:-1])} <= {at_once}
    if records:
        pd.testing.assert_frame_equal(pd.concat(pieces, ignore_index=True), whole, check_exact=True)
    with NamedTemporaryFile(suffix=".parquet") as file, patch("lockstep.analysis.parquet.AT_ONCE", at_once):
        write(columns, Path(file.name))
        found = pd.read_parquet(file.name)
        whole.to_parquet(file.name, index=False)
        pd.testing.assert_frame_equal(found, pd.read_parquet(file.name), check_exact=True)


def test_arrays_of_an_event_are_its_table_s_columns() -> None:
    records = table(
        [("gradient", 1, 0, 2, 3), ("message", 0, 1, 2, 2, 4, "push", 7), ("gradient", 0, 0, 1, 0)]
    )
    for event in ("gradient", "message", "update"):
        frame, found = of(records, event, ["node", "end"]), values_of(records, event, ["node", "end"])
        assert {name: frame[name].tolist() for name in frame} == {n: v.tolist() for n, v in found.items()}
        assert has(records, event) == (event != "update")
    only = records.assign(event=records["event"].cat.remove_unused_categories())  # as a file may have them
    assert len(of(only, "update", ["end"])) == 0
    assert not has(only, "pass")


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
    columns = {"node": ranks, "peer": ranks + 1, "start": start, "left": start + 0.5, "nbytes": 8 + ranks}
    at_once.many("message", "ring", **columns, end=start + 1)
    pd.testing.assert_frame_equal(at_once.frame(), one_by_one.frame(), check_exact=True)


def test_no_messages_at_once_leave_no_kind() -> None:
    recorder, none = Recorder(), np.empty(0)
    recorder.many("work", "apply", node=none, start=none, end=none)
    assert list(recorder.frame()["kind"].cat.categories) == [""]


def test_records_of_several_processes_are_joined_in_the_order_in_which_things_ended() -> None:
    one, two = Recorder(), Recorder()
    one.gradient(0, 0.0, 3.0, 0)
    one.message(0, 1, 3.0, 3.5, 4.0, "push", 8)
    two.message(1, 0, 1.0, nan, 2.0, "parameters", 8)
    two.gradient(1, 0.0, 3.5, 0)
    table = join([one.frame(), two.frame()])
    assert list(table["end"]) == [2.0, 3.0, 3.5, 4.0]
    assert list(table["kind"]) == ["parameters", "", "", "push"]
    assert table["left"].dropna().to_dict() == {3: 3.5}
    assert list(table["event"].cat.categories) == list(EVENTS)
    assert list(table.index) == [0, 1, 2, 3]


def test_many_records_are_packed_in_blocks() -> None:
    recorder = Recorder()
    count = (1 << 16) + 5
    for step in range(count):
        recorder.gradient(step % 7, step, step + 1.0, step)
    frame = recorder.frame()
    assert list(frame["version"]) == list(range(count))
    assert (frame["node"] == frame["version"] % 7).all()


def test_records_are_put_in_order_and_written_with_little_memory_besides_them(tmp_path: Path) -> None:
    recorder, count = Recorder(), 400_000
    at = np.random.default_rng(1).random(count)
    recorder.many("message", "push", node=1, peer=2, start=at, left=at, end=at + 1, nbytes=8)
    recorder.many("work", "apply", node=2, start=at, end=at + 1)
    columns = recorder.columns()
    assert recorder.nbytes == 0
    with patch("lockstep.analysis.parquet.AT_ONCE", 1 << 12):
        write(Recorder().columns(), tmp_path / "warm")  # modules are loaded
        tracemalloc.start()
        try:
            write(columns, tmp_path / "records.parquet")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 32 * count  # the order of one event's, and a column twice
    assert len(pd.read_parquet(tmp_path / "records.parquet")) == 2 * count


def test_a_table_takes_its_memory_and_an_order() -> None:
    recorder, count = Recorder(), 200_000
    at = np.random.default_rng(1).random(count)
    recorder.many("message", "push", node=1, peer=2, start=at, left=at, end=at + 1, nbytes=8)
    tracemalloc.start()
    try:
        frame = recorder.frame()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < frame.memory_usage().sum() + 32 * count
