"""What a sweep varies: the form of the section, and the combinations that it stands for.

Plain keys are a grid; the lists under `zip` vary together; `points` are explicit. Combined is everything with
everything, the first key slowest: grid × zip × points. `seeds` repeats each combination.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, WithJsonSchema

from lockstep.scenarios import renamed
from lockstep.scenarios.units import fail, shown

Changes = dict[str, Any]
_ABOUT = {
    "zip": "a mapping of keys to lists of the same length, such as {cluster.workers: [2, 4]}",
    "points": "a list of mappings, such as [{cluster.workers: 2, seed: 1}]",
    "seeds": "how many seeds, from the scenario's on, or a list of them, each once",
}
_GRID, _SEED = {"type": "array", "minItems": 1}, {"type": "integer", "minimum": 0}
_SCHEMA: dict[str, Any] = {
    "description": "What 'lockstep sweep' varies: dotted keys and lists of values, combined as a grid.",
    "type": "object",
    "properties": {
        "zip": {
            "description": _ABOUT["zip"],
            "type": "object",
            "additionalProperties": _GRID,
            "minProperties": 1,
        },
        "points": {"description": _ABOUT["points"], "items": {"type": "object", "minProperties": 1}, **_GRID},
        "seeds": {
            "description": _ABOUT["seeds"],
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"items": _SEED, "uniqueItems": True, **_GRID},
            ],
        },
    },
    "additionalProperties": _GRID,
    "default": {},
}


def _renamed(sweep: dict[str, Any]) -> dict[str, Any]:
    found = renamed.changes(sweep)
    if isinstance(together := found.get("zip"), dict):
        found["zip"] = renamed.changes(together)
    if isinstance(points := found.get("points"), list | tuple):
        found["points"] = [renamed.changes(each) if isinstance(each, dict) else each for each in points]
    return found


def _well_formed(sweep: dict[str, Any]) -> dict[str, Any]:
    sweep = _renamed(sweep)
    keys: dict[str, tuple[str, ...]] = {}
    for key in (key for key in sweep if key not in _ABOUT):
        _note(keys, key)
        _values(sweep[key], key)
    if "zip" in sweep:
        together = sweep["zip"]
        if not isinstance(together, dict) or not together:
            fail(f"must be {_ABOUT['zip']}, not {shown(together)}", "zip")
        for key, values in together.items():
            _note(keys, key, "zip")
            _values(values, "zip", key)
            first, *_ = together
            if len(values) != (length := len(together[first])):
                fail(f"must have {length} items, as many as {first}, not {len(values)}", "zip", key)
    if "points" in sweep:
        _values(sweep["points"], "points")
        for index, point in enumerate(sweep["points"]):
            if not isinstance(point, dict) or not point:
                fail(f"must be a mapping of keys to values, not {shown(point)}", "points", index)
        for key, index in {key: i for i, point in enumerate(sweep["points"]) for key in point}.items():
            _note(keys, key, "points", index)
    if "seeds" in sweep:
        _seeds(sweep["seeds"])
        if "seed" in keys:
            fail("seed is swept already; keep one of them", "seeds")
    return sweep


def _note(keys: dict[str, tuple[str, ...]], key: str, *above: Any) -> None:
    """Refuse a key that cannot be swept, or that has been listed already."""
    if key in ("name", "sweep") or key.startswith("sweep."):
        fail("cannot be swept; sweep a key such as cluster.workers", *above, key)
    if key in keys:
        fail(f"is in {keys[key][0] if keys[key] else 'the grid'} too; keep one of them", *above, key)
    keys[key] = above


def _values(values: Any, *where: Any) -> None:
    if not isinstance(values, list | tuple):
        fail(f"must be a list, not {shown(values)}", *where)
    if not values:
        fail("must have at least one item", *where)


def _seeds(seeds: Any) -> None:
    listed = isinstance(seeds, list | tuple)
    all_ = seeds if listed else [seeds]
    if not all_ or any(type(seed) is not int or seed < (0 if listed else 1) for seed in all_):
        fail(f"must be a number of seeds, from 1, or a list of seeds, from 0, not {shown(seeds)}", "seeds")
    if len(set(all_)) < len(all_):
        fail("has a seed twice; keep one of them", "seeds")


Sweep = Annotated[dict[str, Any], AfterValidator(_well_formed), WithJsonSchema(_SCHEMA)]


class Part(NamedTuple):
    """Values that go together: one of a key of the grid, one of each key of `zip`, one of `points`."""

    changes: Changes
    at: Mapping[str, str]
    """Where in the section each of the keys is; of the key "", the whole."""


def parts(sweep: Mapping[str, Any]) -> Iterator[list[Part]]:
    """The factors of the product: for each key of the grid, for `zip` and for `points`, their parts."""
    for key, values in sweep.items():
        if key not in _ABOUT:
            yield [Part({key: value}, _at(f"{key}[{i}]", key)) for i, value in enumerate(values)]
    if together := sweep.get("zip"):
        first, *_ = together.values()
        yield [
            Part(
                {key: values[i] for key, values in together.items()},
                {"": "zip", **{key: f"zip.{key}[{i}]" for key in together}},
            )
            for i in range(len(first))
        ]
    if points := sweep.get("points"):
        yield [
            Part(point, {"": f"points[{i}]", **{key: f"points[{i}].{key}" for key in point}})
            for i, point in enumerate(points)
        ]


def _at(place: str, key: str) -> dict[str, str]:
    return {"": place, key: place}


def runs(sweep: Mapping[str, Any]) -> int:
    """How many runs the sweep has."""
    return prod(map(len, _without_seeds(sweep))) * len(seeds(sweep, 0))


def combinations(sweep: Mapping[str, Any]) -> Iterator[Changes]:
    """What each point changes, without its seeds, in a fixed order: the first factor is the slowest.

    A list of `seed` in the grid stands for `seeds`.
    """
    for chosen in product(*_without_seeds(sweep)):
        yield {key: value for part in chosen for key, value in part.changes.items()}


def _without_seeds(sweep: Mapping[str, Any]) -> Iterator[list[Part]]:
    return parts({key: value for key, value in sweep.items() if key != "seed"})


def seeds(sweep: Mapping[str, Any], first: int) -> Sequence[int]:
    """The seeds of a point whose own is `first`."""
    given = sweep.get("seeds", sweep.get("seed", 1))
    return range(first, first + given) if isinstance(given, int) else tuple(given)
