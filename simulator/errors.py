"""What can go wrong in virtual time."""


class SimulationError(RuntimeError):
    """A strategy failed, its nodes wait for each other for ever, or a law of the simulated world was broken.

    `details`: the traceback of the strategy.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class Untraceable(Exception):
    """Only a program itself can tell what it does (trace.py)."""
