"""Nested mappings as one row, for tables and spreadsheets."""

import json
from collections.abc import Mapping
from typing import Any

# Mappings without fixed keys: as columns there would be no end of them. And one that may be a list instead.
_WHOLE = ("staleness.histogram", "utilisation", "breakdown_by_worker", "cluster.codecs", "parallelism.cut")


def flat(document: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys; lists, and mappings without fixed keys, become JSON text."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        path = f"{above}{key}"
        if value is None or isinstance(value, str | float | int):  # as most are
            found[path] = value
        elif isinstance(value, Mapping) and not f".{path}".endswith(tuple(f".{whole}" for whole in _WHOLE)):
            found |= flat(value, f"{path}.")
        elif isinstance(value, Mapping | list | tuple):
            found[path] = json.dumps(value)
        else:
            found[path] = value
    return found
