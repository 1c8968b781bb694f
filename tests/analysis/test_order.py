"""The order of rows that is made column by column."""

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lockstep.analysis.order import in_order, order_of

VALUES = st.sampled_from([0.0, 1.0, np.inf])  # the end of a failure that nobody comes back from is infinite


@given(st.lists(st.tuples(VALUES, VALUES, st.integers(0, 2)), max_size=12))
def test_it_is_that_of_tuples(rows: list[tuple[float, float, int]]) -> None:
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.zeros(0)]
    assert [rows[place] for place in order_of(columns)] == sorted(rows)
    assert in_order(columns) == (rows == sorted(rows))
    with patch("lockstep.analysis.order.AT_ONCE", 2):  # some rows after the others
        assert [rows[place] for place in order_of(columns)] == sorted(rows)
