"""A point of the suite: an ordinary scenario, and the factors that it is one combination of."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from lockstep.scenarios import Scenario

FACTORS = ("strategy", "workers", "shards", "regime", "stragglers")


@dataclass(frozen=True)
class Point:
    """`document`: what its scenario file would have. `part`: "rates" or "learning".

    `runs`: of which a measurement is the mean, at least. `overruns_expected`: gradients that wait for cores
    are no disturbance, but what is predicted.
    """

    name: str
    part: str
    factors: Mapping[str, Any]
    document: Mapping[str, Any]
    runs: int = 1
    overruns_expected: bool = False

    @property
    def scenario(self) -> Scenario:
        """The scenario, validated."""
        return Scenario.model_validate(self.document)

    @property
    def text(self) -> str:
        """The document as JSON, the same for the same content."""
        return json.dumps(self.document, sort_keys=True)

    @property
    def yaml(self) -> str:
        """The document as a scenario file: without defaults, so that a profile can stand beneath it."""
        text, yaml = StringIO(), YAML(typ="safe", pure=True)
        yaml.default_flow_style, yaml.sort_base_mapping_type_on_output = False, False  # type: ignore[assignment]
        yaml.dump(dict(self.document), text)
        return text.getvalue()

    @property
    def key(self) -> str:
        """What the measurement of this scenario, and of no other, is kept by."""
        return sha256(self.text.encode()).hexdigest()
