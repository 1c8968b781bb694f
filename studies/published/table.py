"""A published table: its rows, what is fitted to which of them, and which mechanisms the model has.

`tables/NAME.csv` has the facts, with their source: dotted columns are keys of the scenario, `throughput` or
`step_s` is what was measured, `use` says what a row is for, `cause` what the model lacks of it (empty:
nothing that is known), `devices` how many there are, where a worker is a host of several. All other columns
are labels. `tables/NAME.yaml` has the rest. All of it but `machine` was committed before anything was
predicted.
"""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel, ConfigDict

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.document import parse

FOLDER = files(__package__) / "tables"
MEASURES = ("throughput", "step_s")
MOST_ROWS, MOST_KEYS = 2, 3  # of a series, that are fitted


class Table(BaseModel):
    """`series`: columns; rows that agree in these are of one model on one machine, and fitted by themselves.

    `machine`: columns; series that agree in these have the same machine and library, to which all free keys
    belong but the first. None: each series has one of its own.
    `label`: columns that tell a row from others of its series, and the word after their value.
    `free`: keys and their ranges, `LOW..HIGH`; a series with fewer rows to fit than keys has the first ones.
    `rows`: which are fitted, in words; `why`: why the source leaves the free keys open.
    `scenario`: what all rows share. `causes`: what the model lacks, by the word in the column `cause`.
    `settles`: steps after which a run is steady; those after them are predicted.
    `simulated`: the source's numbers are a simulation's, not measurements. `mended`: its scenario is another
    one than that of its first prediction (docs/published.md says why).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    series: tuple[str, ...]
    machine: tuple[str, ...] | None = None
    label: dict[str, str]
    free: dict[str, str]
    rows: str
    why: str
    scenario: dict[str, Any]
    causes: dict[str, str]
    settles: int = 0
    simulated: bool = False
    mended: bool = False

    @property
    def facts(self) -> pd.DataFrame:
        """The rows of the CSV, cells as text; an empty cell is an empty text."""
        with (FOLDER / f"{self.name}.csv").open(encoding="utf-8") as file:
            return pd.read_csv(file, comment="#", dtype=str, keep_default_na=False)

    @property
    def comments(self) -> list[str]:
        """What the CSV says above its rows, the source last."""
        text = (FOLDER / f"{self.name}.csv").read_text("utf-8")
        return [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]

    @property
    def measure(self) -> str:
        """What was measured: the column's name."""
        (found,) = (each for each in MEASURES if each in self.facts)
        return found


class Series(NamedTuple):
    """Rows of a table that are fitted by themselves, and their free keys; `name` tells them from others."""

    table: Table
    name: str
    facts: pd.DataFrame
    free: dict[str, str]


@cache
def names() -> tuple[str, ...]:
    """Of all tables, in the order of the alphabet."""
    found = (each.name for each in FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def chosen(only: list[str]) -> list[Table]:
    """The tables of these names; all without a name. Raises ScenarioError for a name that is none."""
    for name in only:
        if name not in names():
            raise ScenarioError(f"no table is called {name!r}; there are {', '.join(names())}", key="--only")
    return [read(name) for name in names() if not only or name in only]


def read(name: str) -> Table:
    """The table of that name."""
    return Table.model_validate({"name": name, **parse((FOLDER / f"{name}.yaml").read_text("utf-8"), {})})


def series_of(table: Table) -> Iterator[Series]:
    """In the order of the file."""
    facts = table.facts
    for key, its in facts.groupby([*table.series], sort=False) if table.series else [((), facts)]:
        words = key if isinstance(key, tuple) else (key,)
        free = dict(list(table.free.items())[: (its["use"] == "fit").sum()])
        yield Series(table, " ".join(map(str, words)), its, free)
