"""Sorting the rows of a table that is too large to be copied."""

from collections.abc import Iterable

import numpy as np

AT_ONCE = 1 << 18
"""Rows, of which a copy is not felt."""


def order_of(columns: Iterable[np.ndarray]) -> np.ndarray:
    """The order of rows by the first column, ties by the next, and so on, as far as there are ties."""
    columns = iter(columns)
    first = next(columns).copy()
    order = np.argsort(first, kind="stable").astype(np.min_scalar_type(len(first)))
    opens = np.ones(len(first), bool)  # rows unlike the one before
    for at in range(0, len(first), AT_ONCE):
        opens[at + 1 : at + AT_ONCE + 1] = _changes(first[order[at : at + AT_ONCE + 1]])
    del first
    while not opens.all():
        column = next(columns, None)
        if column is None:
            break
        places = np.flatnonzero(~opens | ~np.append(opens[1:], True))
        rows = order[places]
        rows = rows[np.lexsort((column[rows], np.cumsum(opens[places])))]
        order[places] = rows
        opens[places[1:]] |= _changes(column[rows])
    return order


def in_order(columns: Iterable[np.ndarray]) -> bool:
    """Whether rows are in their order by the first column, ties by the next, and so on."""
    columns = iter(columns)
    first = next(columns)
    if not (first[1:] >= first[:-1]).all():
        return False
    tied = np.flatnonzero(first[1:] == first[:-1])  # with the next one
    for column in columns:
        if not len(tied):
            break
        here, following = column[tied], column[tied + 1]
        if (following < here).any():
            return False
        tied = tied[following == here]
    return True


def _changes(values: np.ndarray) -> np.ndarray:
    """Where one differs from that before; infinite ones have no difference."""
    changes: np.ndarray = values[1:] != values[:-1]
    return changes
