"""What users' code raises in a process that reads for another."""

import traceback
from typing import Self


class Elsewhere(Exception):
    """It can be sent, unlike the exception itself. `frames`: files and lines, the innermost last."""

    def __init__(self, kind: str, said: str, frames: list[tuple[str, int]]) -> None:
        super().__init__(kind, said, frames)
        self.kind, self.said, self.frames = kind, said, frames

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """What is said of an exception."""
        frames = traceback.extract_tb(error.__traceback__)
        return cls(type(error).__name__, str(error), [(each.filename, each.lineno or 0) for each in frames])
