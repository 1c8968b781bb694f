"""Keys that have a new name; the old ones are valid for one release more, and a note says so."""

import warnings
from collections.abc import Mapping
from typing import Any

from lockstep.scenarios.problem import Note

RENAMED = {"schedule": "worker_loop", "rule": "correction"}
"""Keys of a scenario's `strategy`: the old name → the new one."""

COLUMNS = {f"strategy.{old}": f"strategy.{new}" for old, new in RENAMED.items()}
"""The same as dotted keys, as in sweeps and the columns of their results."""


class OldKeyWarning(Note, FutureWarning):
    """A scenario has a key by its old name."""


def strategy(section: Mapping[str, Any]) -> dict[str, Any]:
    """The section with the new names; of two that are one the later counts, such as that of an override."""
    return {_new(key, RENAMED, "strategy."): value for key, value in section.items()}


def changes(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping from dotted keys, as in a sweep, with the new names."""
    return {_new(key, COLUMNS): value for key, value in mapping.items()}


def _new(key: str, names: Mapping[str, str], before: str = "") -> str:
    if key not in names:
        return key
    note = f"{before}{key} is now called {before}{names[key]}; the old name ends with the next release"
    warnings.warn(note, OldKeyWarning, stacklevel=2)
    return names[key]
