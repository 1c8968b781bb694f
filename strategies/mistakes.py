"""What is wrong with a scenario's strategy, in words."""

import difflib
from collections.abc import Iterable
from typing import Any


class StrategyError(ValueError):
    """A scenario names a strategy, or a parameter of one, that is not there or may not have that value."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


def nearest(word: str, valid: Iterable[str]) -> str:
    """What a word may have been meant to be, and all that would be valid, to stand after a problem."""
    near = difflib.get_close_matches(word, list(valid), n=1)
    return (f"; did you mean {near[0]!r}?" if near else "") + f" (valid: {', '.join(valid)})"


def one_of(values: Iterable[Any]) -> str:
    """Values to choose from: "a, b or c"; None is one that is not given."""
    *others, last = ["not given" if value is None else str(value) for value in values]
    return f"{', '.join(others)} or {last}" if others else last


def all_of(values: Iterable[str]) -> str:
    """What holds together: "a, b and c"."""
    *others, last = values
    return f"{', '.join(others)} and {last}" if others else last
