"""What the processes of a real run record, on disk while the run goes on: Arrow streams, a file each.

A process that is killed has lost what it recorded since it last wrote, a fraction of a second; the last piece
may be there in part, and is passed over.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lockstep.analysis.columns import EVENTS, TYPES, Columns
from lockstep.analysis.entries import Entry
from lockstep.analysis.parquet import numbers, strings
from lockstep.analysis.records import join

if TYPE_CHECKING:  # processes of a run write, and do without it
    import pandas as pd

RECORDS, LOG = "records", "interleaving"  # what the streams of a process, rank-N.WHAT.arrow, hold
Batch = Mapping[str, pa.Array]
_TYPE = {name: types[name] for types in TYPES.values() for name in types.names or ()}
_NAMED = ("word", "kind")  # columns of a log that are numbers of names
ENTRY = np.dtype([*zip(Entry._fields[1:], ("i4", "i2", "i2", "i4", "i4", "i4", "f8"), strict=True)])
"""An entry of a node's log, packed."""


class Stream:
    """A file that grows by one batch of rows at a time. Raises OSError, such as for a full disk."""

    def __init__(self, file: Path) -> None:
        self._path = file
        self._file: Any = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def write(self, columns: Batch) -> None:
        """Add rows; they are the system's, not this process's, when this returns."""
        batch = pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])
        if self._writer is None:
            self._file = open(self._path, "wb", buffering=0)  # noqa: SIM115
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Write the end; what has nothing in it leaves no file."""
        if self._writer is not None:
            self._writer.close()
            self._file.close()


def file_of(folder: Path, rank: int, what: str) -> Path:
    """Where a process's stream is."""
    return folder / f"rank-{rank}.{what}.arrow"


def columns_of(rows: Sequence[np.ndarray], kinds: Sequence[str]) -> Batch | None:
    """The records of each event, and the names of kinds, as columns; None if there are none.

    What an event does not have is 0 there.
    """
    if not any(map(len, rows)):
        return None
    events = np.repeat(np.arange(len(EVENTS), dtype="i1"), [*map(len, rows)])
    columns: dict[str, pa.Array] = {"event": _named(events, EVENTS)}
    for name, kind in _TYPE.items():
        values = np.concatenate([r[name] if name in _fields(r) else np.zeros(len(r), kind) for r in rows])
        columns[name] = _named(values, kinds) if name == "kind" else numbers(values)
    return columns


def log_columns(rows: np.ndarray, names: Sequence[str]) -> Batch | None:
    """Entries of a log as columns; None if there are none. Operations and kinds are numbers of names."""
    if not len(rows):
        return None
    return {
        name: _named(rows[name].astype("i4"), names) if name in _NAMED else numbers(rows[name])
        for name in _fields(rows)
    }


def records(files: Sequence[Path]) -> "pd.DataFrame | None":
    """The records of these files in one table, in the order in which things ended; None if there are none."""
    frames = [_frame(found) for found in map(_read, files) if found is not None]
    return join(frames) if frames else None


def log(folder: Path, rank: int, alone: bool = False) -> "pd.DataFrame":
    """A node's log, as `Entry` says: from its stream, or from where its entries were written one by one.

    alone: without those of processes that have been there before.
    """
    import pandas as pd

    columns: dict[str, Any] = {}
    before = [] if alone else folder.glob(f"rank-{rank}.life-*.{LOG}.packed")
    lives = sorted(before, key=lambda file: int(file.name.split(".")[1].removeprefix("life-")))
    found_packed = [file for file in (*lives, packed_log(folder, rank)[0]) if file.exists()]
    if found_packed:
        return pd.concat([_packed(file, rank) for file in found_packed], ignore_index=True)
    if (found := _read(file_of(folder, rank, LOG))) is not None:
        columns = {name: found.column(name).to_numpy() for name in Entry._fields[1:] if name not in _NAMED}
        for name in _NAMED:
            codes, names = _codes(found.column(name))
            columns[name] = np.array(names, dtype=object)[codes]
    else:
        return pd.DataFrame({name: [] for name in Entry._fields})
    return _with_node(columns, rank)


def _packed(file: Path, rank: int) -> "pd.DataFrame":
    data = file.read_bytes()
    entries = np.frombuffer(data[: len(data) // ENTRY.itemsize * ENTRY.itemsize], ENTRY)
    named = file.with_suffix(".names")
    names = named.read_text(encoding="utf-8").splitlines() if named.exists() else []
    if not names:  # whoever made the two files, or gave them other names, was killed in between
        entries = entries[:0]
    columns: dict[str, Any] = {name: entries[name] for name in _fields(entries)}
    columns |= {name: np.array(names, dtype=object)[entries[name]] for name in _NAMED}
    return _with_node(columns, rank)


def _with_node(columns: Batch | dict[str, Any], rank: int) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.DataFrame(columns, columns=[*Entry._fields[1:]])
    frame.insert(0, "node", np.full(len(frame), rank, "i4"))
    return frame


def packed_log(folder: Path, rank: int) -> tuple[Path, Path]:
    """Where the entries of a log are that are written one by one, and the names of its codes, a line each."""
    return folder / f"rank-{rank}.{LOG}.packed", folder / f"rank-{rank}.{LOG}.names"


def streams(folder: Path) -> list[Path]:
    """The records' files in a folder, in the order of ranks, and of each rank's lives."""
    files = folder.glob(f"rank-*.{RECORDS}.arrow")
    return sorted(files, key=lambda file: (int(file.name.split(".")[0][5:]), file.name))


def _frame(found: pa.Table) -> "pd.DataFrame":
    events, names = _codes(found.column("event"))
    codes, kinds = _codes(found.column("kind"))
    rows = []
    for event in EVENTS:
        here = events == names.index(event) if event in names else np.zeros(len(found), bool)
        part = np.empty(int(here.sum()), TYPES[event])
        for name in _fields(part):
            part[name] = (codes if name == "kind" else found.column(name).to_numpy())[here]
        rows.append(part)
    return Columns(rows, kinds).frame()


def _read(file: Path) -> pa.Table | None:
    """All whole batches of a file; None if there are none."""
    batches = list(_batches(file))
    return pa.Table.from_batches(batches).unify_dictionaries() if batches else None


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as stream:
            yield from stream
    except (OSError, pa.ArrowInvalid):  # there is none, or its end was never written
        return


def _named(codes: np.ndarray, names: Sequence[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(numbers(codes), strings(names))


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """What a column of names has in each row, as a number of one of these names."""
    whole = column.combine_chunks()
    return whole.indices.to_numpy(), whole.dictionary.to_pylist()


def _fields(rows: np.ndarray) -> Sequence[str]:
    return rows.dtype.names or ()
