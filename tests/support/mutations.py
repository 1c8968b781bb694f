"""Inputs with something wrong in them: documents, texts, bytes and tables, from good ones."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
from hypothesis import strategies as st

Path = tuple[str | int, ...]
Known = dict[str, dict[str, list[Any]]]
UNITS = ("s", "ms", "us", "h", "B", "KiB", "GB", "Gbit/s", "B/s", "TFLOP/s", "USD/h", "updates", "parsec", "")
NUMBERS: list[float] = [
    *(0, 1, -1, 2, 3, 7, 1000, 10**9, 2**31, 2**63, 10**30),
    *(0.5, -0.5, 1e-300, 5e-324, 1e300, 1.7e308, -1e308, math.nan, math.inf, -math.inf),
]
WORDS = [
    *(
        "",
        " ",
        "all",
        "none",
        "measured",
        "nan",
        "1e3",
        "0x10",
        "-",
        "..",
        "/",
        "a\x00b",
        "\x1b[31m",
        "\u202e",
    ),
    *("ß" * 40, "x" * 5000, "2024-05-01", "yes", "{}", "[", "*a", "!!int 3", "${HOME}", "%s%n", "../../etc"),
]


def leaves(document: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value of a document, the mappings and lists too, and where it is."""
    yield path, document
    if isinstance(document, dict | list):
        for key, inner in document.items() if isinstance(document, dict) else enumerate(document):
            yield from leaves(inner, (*path, key))


def put(document: Any, path: Path, value: Any) -> Any:
    """A copy with `value` at `path`."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(document, list):
        return [put(item, rest, value) if at == head else item for at, item in enumerate(document)]
    return {**document, head: put(document.get(head), rest, value)}


def without(document: Any, path: Path) -> Any:
    """A copy without what is at `path`."""
    if len(path) == 1:
        if isinstance(document, list):
            return [item for at, item in enumerate(document) if at != path[0]]
        return {key: value for key, value in document.items() if key != path[0]}
    return put(document, path[:1], without(document[path[0]], path[1:]))


numbers = st.sampled_from(NUMBERS) | st.integers(-9, 9)
quantities = st.tuples(numbers, st.sampled_from(UNITS)).map(lambda pair: f"{pair[0]!r} {pair[1]}")
scalars = numbers | quantities | st.none() | st.booleans() | st.sampled_from(WORDS) | st.text(max_size=5)
junk = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.sampled_from(WORDS), scalars, max_size=2)


def known_keys(documents: Iterable[Any]) -> Known:
    """What the documents say: of each mapping, by the key to it, its keys and their values."""
    known: Known = {}
    for document in documents:
        for path, value in leaves(document):
            if path and isinstance(path[-1], str):
                values = known.setdefault(parent(path), {}).setdefault(path[-1], [])
                if value not in values:
                    values.append(value)
    return known


def parent(path: Path) -> str:
    """The key to the mapping that a place is in; "" of the document itself."""
    return next((str(word) for word in reversed(path[:-1]) if isinstance(word, str)), "")


@st.composite
def documents(draw: st.DrawFn, good: Sequence[Any], known: Known) -> Any:
    """One of the good documents with one to four changes; `known`: what may stand in a mapping."""
    document = draw(st.sampled_from(good))
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4]))):
        if not isinstance(document, dict | list):
            break
        document = draw(_changed(document, known))
    return document


_CHANGES = ["like"] * 4 + ["known"] * 6 + ["junk", "gone", "more", "twice", "swap"]


@st.composite
def _changed(draw: st.DrawFn, document: Any, known: Known) -> Any:
    places = [(path, value) for path, value in leaves(document) if path]
    if not places:
        return draw(junk)
    path, value = draw(st.sampled_from(places))
    match draw(st.sampled_from(_CHANGES)):
        case "junk":
            return put(document, path, draw(junk))
        case "like":
            return put(document, path, draw(_like(value)))
        case "known":
            inside = [place for place, each in leaves(document) if isinstance(each, dict)]
            places = [each for each in inside if parent((*each, "")) in known]
            if not places:
                return put(document, path, draw(junk))
            place = draw(st.sampled_from(places))
            keys = known[parent((*place, ""))]
            key = draw(st.sampled_from([*keys]))
            return put(document, (*place, key), draw(st.sampled_from(keys[key])))
        case "gone":
            return without(document, path)
        case "more" if isinstance(document, dict):
            where = path if isinstance(value, dict) else ()
            return put(document, (*where, draw(st.sampled_from(WORDS))), draw(junk))
        case "more":
            return [*document, draw(junk)]
        case "twice":
            return put(document, path, value * 2 if isinstance(value, list) else [value, value])
        case _:
            return put(document, path, draw(st.sampled_from(places))[1])


def _like(value: Any) -> st.SearchStrategy[Any]:
    """Another value of the same kind, half of the time a usual one."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int | float):
        return st.sampled_from([value * 2, value + 1, value - 1, value / 2]) | numbers
    if isinstance(value, str) and value[:1].isdigit() and " " in value:
        number, unit = value.split(" ", 1)
        near = st.sampled_from(["0", number + "0", f"0.0{number}", f"-{number}", number])
        return (near | numbers.map(repr)).map(lambda each: f"{each} {unit}")
    return scalars


@st.composite
def texts(draw: st.DrawFn, good: Sequence[str]) -> str:
    """One of the good texts with one to four changes of characters or lines."""
    text = draw(st.sampled_from(good))
    for _ in range(draw(st.integers(1, 4))):
        lines = text.split("\n")
        line = draw(st.integers(0, len(lines) - 1))
        at = draw(st.integers(0, len(lines[line])))
        match draw(st.sampled_from(["insert", "cut", "line", "indent", "number", "end"])):
            case "insert":
                lines[line] = (
                    lines[line][:at] + draw(st.sampled_from(WORDS) | st.text(max_size=3)) + lines[line][at:]
                )
            case "cut":
                lines[line] = lines[line][:at] + lines[line][at + draw(st.integers(1, 9)) :]
            case "line":
                lines.insert(draw(st.integers(0, len(lines))), lines[line])
            case "indent":
                lines[line] = draw(st.sampled_from([" ", "  ", "\t", "- "])) + lines[line]
            case "number":
                words = lines[line].split(" ")
                words[draw(st.integers(0, len(words) - 1))] = repr(draw(numbers))
                lines[line] = " ".join(words)
            case _:
                lines = lines[: line + 1]
        text = "\n".join(lines)
    return text


@st.composite
def contents(draw: st.DrawFn, good: bytes) -> bytes:
    """The bytes of a file, of which some are others, are missing, or come twice."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(good) - 1)))
        match draw(st.sampled_from(["flip", "flip", "cut", "end", "twice", "zeros"])):
            case "flip":
                good = good[:at] + bytes([draw(st.integers(0, 255))]) + good[at + 1 :]
            case "cut":
                good = good[:at] + good[at + draw(st.integers(1, 64)) :]
            case "end":
                good = good[:at]
            case "twice":
                good = good[:at] + good[max(0, at - 64) :]
            case _:
                good = good[:at] + bytes(8) + good[at + 8 :]
    return good


@st.composite
def tables(draw: st.DrawFn, good: pd.DataFrame) -> pd.DataFrame:
    """A table with one to three changes of its columns, cells and rows."""
    table = good.copy()
    for _ in range(draw(st.integers(1, 3))):
        if not len(table.columns):
            break
        name = draw(st.sampled_from([*table.columns]))
        match draw(
            st.sampled_from(["cell", "cell", "cell", "column", "gone", "type", "rows", "order", "named"])
        ):
            case "cell":
                column = table[name].astype(object)
                for row in draw(st.lists(st.integers(0, max(0, len(table) - 1)), min_size=1, max_size=3)):
                    if len(column):
                        column.iloc[row] = draw(cells)
                table[name] = _storable(column)
            case "column":
                table[name] = _storable(pd.Series([draw(cells)] * len(table), table.index, object))
            case "gone":
                table = table.drop(columns=name)
            case "type":
                table[name] = table[name].astype(draw(st.sampled_from(["str", "object"])))
            case "rows":
                kept = draw(st.sampled_from([slice(0, 0), slice(0, 1), slice(None, None, 2), slice(5, None)]))
                table = table.iloc[kept]
            case "order":
                table = pd.concat([table.iloc[::-1], table.iloc[:2]])
            case _:
                table = table.rename(columns={name: draw(st.sampled_from([*table.columns, "x", ""]))})
                table = table.loc[:, ~table.columns.duplicated()]
    return table


cells = st.sampled_from(
    [
        0,
        1,
        -1,
        -2,
        3,
        10**6,
        2**31,
        2**62,
        0.5,
        -1e9,
        1e300,
        math.nan,
        math.inf,
        -math.inf,
        None,
        "",
        "x",
        True,
    ]
)


def _storable(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """As numbers if all are, else as words: a column of a file is of one type."""
    if all(value is None or isinstance(value, int | float) for value in column):
        return pd.to_numeric(column)
    return column.map(lambda value: None if value is None else str(value))
