"""What a measurement found: settings as a scenario has them, how sure they are, and what they stand on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Findings:
    """Values by the dotted key of a scenario's cluster, such as `network.latency`, in base units.

    `intervals`: 95% confidence, of those that have one. `evidence`: the numbers behind them, by name; plain
    lists, dicts, strings and numbers.
    """

    settings: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
