"""Sorting the rows of a table that is too large to be copied."""

from collections.abc import Iterable

import numpy as np


def order_of(columns: Iterable[np.ndarray]) -> np.ndarray:
    """The order of rows by the first column, ties by the next, and so on, as far as there are ties."""
    columns = iter(columns)
    first = next(columns)
    order = np.argsort(first, kind="stable")
    opens = np.concatenate([[True], _changes(first[order])])[: len(first)]  # rows unlike the one before
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


def _changes(values: np.ndarray) -> np.ndarray:
    """Where one differs from that before; infinite ones have no difference."""
    changes: np.ndarray = values[1:] != values[:-1]
    return changes
