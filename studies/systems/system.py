"""What is said of a system: what it is, after which source, its scenarios, and what was published of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Published:
    """A throughput in samples/s, and the scenario of that size that predicts it."""

    what: str
    value: float
    scenario: str
    source: str
    verdict: str
    """Why it is met or missed, in a sentence; what is not known."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Keys of that scenario that are otherwise here."""

    def row(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "what": self.what,
            "samples_per_s": round(self.value, 1),
            "scenario": self.scenario,
            "source": self.source,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Also:
    """Another scenario of a system, with a factor that the first does not have."""

    scenario: str
    factor: str
    without: Mapping[str, Any]


@dataclass(frozen=True)
class System:
    """A row. `scenario` is the name of a shipped one, which runs in both engines."""

    name: str
    scenario: str
    architecture: str
    consistency: str
    placement: str
    communication: str
    parallelism: str
    factor: str
    """What it has and its neighbours have not, in words."""
    without: Mapping[str, Any]
    """Keys of the scenario that take the factor away."""
    source: str
    """What the recipe was checked against, and how much of that was read."""
    also: tuple[Also, ...] = ()
    lacking: str = ""
    """What the scenario does not have of the system."""
    published: tuple[Published, ...] = ()
    tables: tuple[str, ...] = ()
    """Of those that `validate --published` predicts (docs/published.md), the ones measured with it."""
    unread: str = ""
    """Why there is no published figure, if there is none."""

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Its own, and the others."""
        return self.scenario, *(each.scenario for each in self.also)

    def row(self) -> dict[str, Any]:
        """As JSON has it."""
        words = ("name", "scenario", "architecture", "consistency", "placement", "communication")
        return {
            **{key: getattr(self, key) for key in (*words, "parallelism")},
            "published": [each.row() for each in self.published],
        }
