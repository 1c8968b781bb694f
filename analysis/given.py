"""Tables of a result that are made when somebody asks for them: metrics and files need their arrays alone.

pandas takes longer to load than a small simulation, and more memory than a large one's nodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


class Words(NamedTuple):
    """A column of texts: of each row the number of its text."""

    numbers: np.ndarray
    texts: Sequence[str]


Piece = Mapping[str, np.ndarray | Words]
"""Columns of some rows of a table."""


@runtime_checkable
class Arrays(Protocol):
    """What has a table's numbers."""

    def frame(self) -> Any:
        """The table."""

    def pieces(self, rows: int) -> Iterator[Piece]:
        """Its columns, about so many rows at a time; one piece at least."""


def small(texts: Sequence[str]) -> np.dtype[Any]:
    """What the numbers of texts have in memory."""
    return np.dtype("i1" if len(texts) < 1 << 7 else "i2" if len(texts) < 1 << 15 else "i4")


def framed(piece: Piece, known: "Mapping[str, pd.Index[str]]") -> "pd.DataFrame":
    """The columns as a table that shares their memory; texts are categories, `known` for some columns."""
    import pandas as pd

    columns: dict[str, Any] = {**piece}
    for name, column in piece.items():
        if isinstance(column, Words):
            texts = known[name] if name in known else pd.Index(column.texts, dtype=str)
            columns[name] = pd.Categorical.from_codes(column.numbers, categories=texts)
    return pd.DataFrame(columns, copy=False)


class Made:
    """A field that is given a table, or its arrays, and is a table to all who read it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __set__(self, result: Any, value: Any) -> None:
        vars(result)[self._name] = value

    def __get__(self, result: Any, owner: type | None = None) -> Any:
        if result is None:
            return self
        value = vars(result)[self._name]
        if isinstance(value, Arrays):
            value = vars(result)[self._name] = value.frame()
        return value


def given(result: Any, name: str) -> Any:
    """What such a field has: the arrays, until somebody has read it."""
    return vars(result)[name]
