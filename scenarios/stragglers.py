"""Workers that are slower than others: `cluster.stragglers`. All times are seconds.

Each item slows one worker, the workers of one host or of one rack, or, if it names none of these, every
worker by itself. What slows a host or a rack slows its workers together. Items for the same worker multiply.
"""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from lockstep.scenarios.files import beside, rows
from lockstep.scenarios.section import FACTOR, Factor, Section, is_factor, nearest, one_of
from lockstep.scenarios.units import TIME, TIME_FROM_0, Duration, PositiveDuration, fail, shown

SCOPES = ("worker", "host", "rack")
_Slowdown = Annotated[Factor, Field(description="how many times as long it takes, such as 'slowdown: 3'")]


class _Scoped(Section):
    """At most one of `worker`, `host` and `rack`, each counted from 0."""

    worker: int | None = Field(None, ge=0)
    host: int | None = Field(None, ge=0)
    rack: int | None = Field(None, ge=0)

    @property
    def scope(self) -> tuple[str, int] | None:
        """Whom it slows, such as ("host", 1); None: every worker by itself."""
        named = [(scope, number) for scope in SCOPES if (number := getattr(self, scope)) is not None]
        return named[0] if named else None

    @model_validator(mode="after")
    def _one_scope(self) -> Self:
        named = [scope for scope in SCOPES if getattr(self, scope) is not None]
        if len(named) > 1:
            fail(f"give at most one of {', '.join(SCOPES)}, not {' and '.join(named)}", named[1])
        return self


class Persistent(_Scoped):
    """Always takes `slowdown` times as long."""

    slowdown: _Slowdown

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if self.scope is None:  # all alike would be another compute time, and is probably a slip
            fail(
                "missing; give the worker's number from 0, such as 'worker: 3', or host or rack, "
                "or when it is slow: probability, spells, period or trace",
                "worker",
            )
        return self


class Occasional(_Scoped):
    """Each gradient, independently, takes `slowdown` times as long with `probability`.

    The n-th gradients of the workers of a host or a rack are slow together.
    """

    slowdown: _Slowdown
    probability: float = Field(gt=0, le=1)


class Means(Section):
    """Exponential times: normal for one of mean `every`, then slow for one of mean `last`."""

    every: PositiveDuration
    last: PositiveDuration


class Spells(_Scoped):
    """Slow spells: a two-state Markov chain in continuous time, in its steady state from the start."""

    slowdown: _Slowdown
    spells: Means


class Periodic(_Scoped):
    """Slow in [`offset` + k·`period`, `offset` + k·`period` + `busy`) for k = 0, 1, 2, …"""

    slowdown: _Slowdown
    period: PositiveDuration
    busy: PositiveDuration
    offset: Duration = 0.0

    @model_validator(mode="after")
    def _sometimes_normal(self) -> Self:
        if self.busy >= self.period:
            fail(f"must be less than period ({self.period!r} s), not {self.busy!r} s", "busy")
        return self


class Trace(_Scoped):
    """As slow as the file `trace` says: lines `seconds, slowdown`, each valid until the next line's time.

    The last line stays valid, or, with `repeat`, until that time, when the trace begins again.
    """

    trace: str = Field(description="a text file of 'seconds, slowdown' lines, such as 'trace: slow.csv'")
    repeat: PositiveDuration | None = None

    @field_validator("trace")
    @classmethod
    def _absolute(cls, file: str, info: ValidationInfo) -> str:
        path = beside(file, info)
        steps = _read(path)
        if steps[0][0] != 0:
            fail(f"the file begins at {steps[0][0]!r} s; its first line must be at 0 s")
        for (before, _), (after, _) in pairwise(steps):
            if after <= before:
                fail(f"the file has {after!r} s after {before!r} s; its times must rise")
        return str(path)

    @model_validator(mode="after")
    def _repeats_after_its_end(self) -> Self:
        if self.repeat is not None and self.repeat <= (end := self.steps[-1][0]):
            fail(f"must be more than the last time of the trace ({end!r} s), not {self.repeat!r} s", "repeat")
        return self

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        """(from when in seconds, slowdown), the first at 0; read anew at each call."""
        return _read(Path(self.trace))


def _step(line: str) -> tuple[float, float] | None:
    seconds, slowdown = map(float, line.split(","))  # more or fewer numbers: a ValueError
    return (seconds, slowdown) if TIME_FROM_0.admits(seconds) and is_factor(slowdown) else None


def _read(path: Path) -> tuple[tuple[float, float], ...]:
    form = f"seconds and a slowdown (at most {TIME.most}; {FACTOR}), such as '12.5, 3'"
    return rows(path, _step, "'seconds, slowdown'", form)


_Stragglers = Persistent | Occasional | Spells | Periodic | Trace
_KEYS = sorted({key for kind in get_args(_Stragglers) for key in kind.model_fields})
_MARKS: dict[str, type[Section]] = {
    **{"probability": Occasional, "spells": Spells, "period": Periodic, "trace": Trace},
    **{"busy": Periodic, "offset": Periodic, "repeat": Trace},
}


def _kind(data: Any) -> type[Section]:
    if not isinstance(data, dict):
        fail(f"must be a mapping such as {{worker: 3, slowdown: 3}}, not {shown(data)}")
    for key in data:
        if key not in _KEYS:
            fail(f"unknown key{nearest(key, _KEYS)}", key)
    found = {_MARKS[key]: key for key in reversed(_MARKS) if key in data}
    if len(found) > 1:
        kinds = ", ".join(key for key in _MARKS if key in found.values())
        fail(f"give one of probability, spells, period and trace, not {kinds}; several items multiply")
    return next(iter(found), Persistent)


Straggler = Annotated[_Stragglers, one_of(_kind)]
