"""Tables of a result that are made when somebody asks for them: metrics need their arrays alone.

pandas takes longer to load than a small simulation, and to make its tables longer than their metrics.
"""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Arrays(Protocol):
    """What has a table's numbers."""

    def frame(self) -> Any:
        """The table."""


class Made:
    """A field that is given a table, or its arrays, and is a table to all who read it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __set__(self, result: Any, value: Any) -> None:
        vars(result)[self._name] = value

    def __get__(self, result: Any, owner: type | None = None) -> Any:
        if result is None:
            return self
        value = vars(result)[self._name]
        if isinstance(value, Arrays):
            value = vars(result)[self._name] = value.frame()
        return value


def given(result: Any, name: str) -> Any:
    """What such a field has: the arrays, until somebody has read it."""
    return vars(result)[name]
