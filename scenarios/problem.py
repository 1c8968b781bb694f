"""What every bad input ends in, and what is said of a doubtful one; nothing is loaded for it."""


class Note(UserWarning):
    """What the author of a scenario should know of it; commands print it in a line."""


class ScenarioError(Exception):
    """What is wrong with an input: `problem`, at which dotted `key`, in which `file` and `line` (from 1).

    A key or a file that is not known is "", such a line None. `str` of it is one line with all of them, which
    the command line prints.
    """

    def __init__(self, problem: str, key: str = "", file: str = "", line: int | None = None) -> None:
        super().__init__(problem, key, file, line)
        self.problem, self.key, self.file, self.line = problem, key, file, line

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        text = ": ".join(part for part in (place, self.key, self.problem) if part)
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
