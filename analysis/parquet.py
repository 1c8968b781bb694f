"""Tables as Parquet files. One that is yet to be made from its arrays is written a piece at a time."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lockstep.analysis.given import Arrays, Piece, Words
from lockstep.analysis.order import AT_ONCE

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def write(table: "pd.DataFrame | Arrays", file: Path) -> None:
    """Write a table, without its index, so that damage to the file is noticed when it is read."""
    if not isinstance(table, Arrays):
        table.to_parquet(file, index=False, write_page_checksum=True)
        return
    from pyarrow.parquet import ParquetWriter

    pieces = map(_in_arrow, table.pieces(AT_ONCE))
    piece = next(pieces)
    # Hardly two times are the same: a dictionary has them all once more, in memory and in the file.
    few_values = [field.name for field in piece.schema if str(field.type) != "double"]
    with ParquetWriter(
        file, piece.schema, compression="snappy", use_dictionary=few_values, write_page_checksum=True
    ) as writer:
        while piece is not None:
            writer.write_table(piece)
            piece = None  # before there is the next one
            piece = next(pieces, None)


def _in_arrow(piece: Piece) -> "pa.Table":
    import pyarrow as pa

    return pa.table({name: _column(column) for name, column in piece.items()})


def _column(column: np.ndarray | Words) -> "pa.Array":
    import pyarrow as pa

    if isinstance(column, Words):
        return pa.DictionaryArray.from_arrays(_column(column.numbers), strings(column.texts), safe=False)
    nothing = np.isnan(column) if column.dtype.kind == "f" else np.zeros(0, bool)
    return numbers(column, np.packbits(~nothing, bitorder="little") if nothing.any() else None)


def numbers(values: np.ndarray, there: np.ndarray | None = None) -> "pa.Array":
    """From buffers: PyArrow loads pandas with the first array that it is given otherwise.

    there: a bit a value, for those that are not null; None: none is.
    """
    import pyarrow as pa

    buffers = [None if there is None else pa.py_buffer(there), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def strings(texts: Sequence[str]) -> "pa.Array":
    """Likewise from buffers."""
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype="i4")
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
