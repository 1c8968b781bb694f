"""The units in which pictures show values."""

from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep.analysis.plots import words
from lockstep.analysis.plots.series import named
from lockstep.scenarios.units import Quantity


def test_units_suit_the_values() -> None:
    assert words.scale("cluster.network.bandwidth", [1.25e9]) == (8e-9, "Gbit/s")
    assert words.scale("cluster.network.latency", [5e-5, 2e-4]) == (pytest.approx(1e6), "µs")
    assert words.scale("duration_s", [7200.0, 40000.0]) == (1 / 3600, "h")
    assert words.scale("throughput", [1e6]) == (1.0, "samples/s")
    assert words.scale("strategy.bound", [3]) == (1.0, "")


@pytest.mark.parametrize(
    ("key", "one", "many"),
    [
        ("parallelism.micro_batches", "1 micro-batch", "8 micro-batches"),
        ("parallelism.tensor", "1 part of each layer", "8 parts of each layer"),
        ("cluster.workers", "1 worker", "8 workers"),
    ],
)
def test_one_of_a_thing_is_in_the_singular(key: str, one: str, many: str) -> None:
    table = pd.DataFrame({key: [1, 8]})
    assert [named(table, key, item) for item in (1, 8)] == [one, many]


def test_every_quantity_of_the_schema_has_its_unit() -> None:
    def quantities(model: Any, seen: set[Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        if model in seen or not hasattr(model, "model_fields"):
            return {k: v for sub in getattr(model, "__args__", ()) for k, v in quantities(sub, seen).items()}
        seen.add(model)
        for name, field in model.model_fields.items():
            marks = [*field.metadata, *getattr(field.annotation, "__metadata__", ())]
            inner = [getattr(sub, "__metadata__", ()) for sub in getattr(field.annotation, "__args__", ())]
            marks += [mark for some in inner for mark in some]
            for mark in marks:
                if isinstance(mark, Quantity):
                    found[name] = mark.unit
            found |= quantities(field.annotation, seen)
        return found

    units = quantities(lockstep.Scenario, set())
    assert len(units) > 10
    assert {name: words._UNIT_OF.get(name) for name in units} == units
