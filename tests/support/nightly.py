"""What `make test` leaves to `make nightly`: most of a long list, and most of a property's random examples.

What stays is drawn by a rule that nobody chooses by: a checksum of the name.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar
from zlib import crc32

import pytest
from hypothesis import settings

NIGHT = 100  # random examples of a property
T = TypeVar("T")


def drawn(cases: Iterable[T], one_in: int, family: Callable[[T], Hashable] = lambda _: None) -> list[Any]:
    """The cases as pytest's parameters: of each family one in so many, at least one; `nightly` the rest."""
    cases, families = list(cases), dict[Hashable, list[T]]()
    for case in cases:
        families.setdefault(family(case), []).append(case)
    kept = list[T]()
    for members in families.values():
        kept += sorted(members, key=lambda case: crc32(str(case).encode()))[: -(-len(members) // one_in)]
    return [case if case in kept else _at_night(case) for case in cases]


def examples(times: float = 1, **more: Any) -> settings:
    """So many times as many random examples as other properties have (30, and 100 at night), at least 8."""
    return settings(max_examples=max(8, round(times * settings.default.max_examples)), **more)


def so_many(by_day: int, at_night: int, **more: Any) -> settings:
    """These many random examples, with the second number in `make nightly`."""
    return settings(max_examples=at_night if settings.default.max_examples == NIGHT else by_day, **more)


def _at_night(case: Any) -> Any:
    values = case if type(case) is tuple else (case,)
    return pytest.param(*values, marks=pytest.mark.nightly)
