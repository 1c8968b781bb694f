"""What is different between runs, sweeps or scenarios: `lockstep compare`, `lockstep.compare`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import lockstep
from lockstep import scenarios
from lockstep.analysis import runs
from lockstep.analysis.differences import Pair, Side, differences
from lockstep.analysis.result import Result
from lockstep.analysis.summary import DONE
from lockstep.scenarios import Scenario, ScenarioError

Source = str | Path | Result | Scenario | pd.DataFrame


@dataclass(frozen=True)
class Comparison:
    """Each side against the first of them: the `pairs` of their points."""

    pairs: Sequence[Pair]

    @property
    def same(self) -> bool:
        """Whether nothing differs, in no pair."""
        return all(pair.same for pair in self.pairs)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each metric of each pair."""
        return [
            {"first": pair.sides[0], "second": pair.sides[1], "where": dict(pair.where), "metric": name}
            | {f"of_{key}" if key in ("first", "second") else key: value for key, value in each.items()}
            for pair in self.pairs
            for name, each in pair.to_json()["metrics"].items()
        ]

    @property
    def table(self) -> pd.DataFrame:
        """The same as a data frame."""
        return pd.DataFrame(self.rows)

    def to_json(self) -> dict[str, Any]:
        """What `lockstep compare --json` prints."""
        return {"same": self.same, "pairs": [pair.to_json() for pair in self.pairs]}


def compare(sources: Sequence[Source], progress: Callable[[float], None] | None = None) -> Comparison:
    """Compare the first of them with each of the others; see `lockstep.compare`."""
    sides = [side for source in sources for side in _sides(source, len(sources) == 1, progress)]
    if len(sides) < 2:
        raise ScenarioError("nothing to compare it with; give two runs, sweeps or scenarios, or more")
    return Comparison([pair for other in sides[1:] for pair in differences(sides[0], other)])


def _sides(source: Source, alone: bool, progress: Callable[[float], None] | None) -> list[Side]:
    if isinstance(source, pd.DataFrame):
        return [Side("table", source)]
    if isinstance(source, Result):
        return [Side(f"{source.scenario.name}, {DONE[source.engine]}", pd.DataFrame([source.row]))]
    if isinstance(source, Scenario):
        return [_simulated(source.name, source, progress)]
    path = Path(source)
    if not path.is_dir() and path.suffix != ".parquet":
        return [_simulated(str(source), scenarios.load(source, (), lockstep.check, alone=True), progress)]
    table = runs.read([path]).table
    engines: set[str] = set(table["engine"].dropna()) if "engine" in table else set()
    if alone and len(engines) == 2:  # what `validate` wrote
        return [Side(DONE[name], table[table["engine"] == name]) for name in ("simulator", "executor")]
    return [Side(str(source), table)]


def _simulated(name: str, scenario: Scenario, progress: Callable[[float], None] | None) -> Side:
    return Side(name, pd.DataFrame([lockstep.simulate(scenario, progress).row]))
