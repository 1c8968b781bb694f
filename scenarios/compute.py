"""How long one gradient takes: `cluster.compute`. All times are seconds."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, WrapValidator, field_validator, model_validator

from scenarios.section import Section, nearest
from scenarios.units import Duration, FlopRate, PositiveDuration, fail, shown

_Cv = Annotated[float, Field(gt=0, description="standard deviation / mean, such as 'cv: 0.2'")]


class _Times(Section):
    @property
    def mean_s(self) -> float:
        """The mean in seconds."""
        return self._mean()

    def _mean(self) -> float:
        return float(getattr(self, "mean"))  # noqa: B009  (not every distribution has this key)


class Constant(_Times):
    """Always `value`."""

    distribution: Literal["constant"]
    value: Duration

    def _mean(self) -> float:
        return self.value


class Uniform(_Times):
    """Uniform in [`low`, `high`]."""

    distribution: Literal["uniform"]
    low: Duration
    high: Duration

    def _mean(self) -> float:
        return self.low + (self.high - self.low) / 2

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            fail(f"must be at least low ({self.low!r} s), not {self.high!r} s", "high")
        return self


class Exponential(_Times):
    """Exponential with `mean`."""

    distribution: Literal["exponential"]
    mean: PositiveDuration


class ShiftedExponential(_Times):
    """`shift` plus an exponential with `mean`."""

    distribution: Literal["shifted-exponential"]
    shift: Duration
    mean: PositiveDuration

    def _mean(self) -> float:
        return self.shift + self.mean


class LogNormal(_Times):
    """Log-normal with `mean` and coefficient of variation `cv`."""

    distribution: Literal["lognormal"]
    mean: PositiveDuration
    cv: _Cv


class Gamma(_Times):
    """Gamma with `mean` and coefficient of variation `cv`."""

    distribution: Literal["gamma"]
    mean: PositiveDuration
    cv: _Cv


class Pareto(_Times):
    """Pareto with `mean`; P(time > t) falls as t^-`shape`, and only a shape above 1 has a mean."""

    distribution: Literal["pareto"]
    mean: PositiveDuration
    shape: float = Field(gt=1, description="its tail index, such as 'shape: 2.5'")


class Empirical(_Times):
    """Drawn from the times in `file`: one number of seconds per line, relative to the scenario's file."""

    distribution: Literal["empirical"]
    file: str = Field(description="a text file of seconds, one per line, such as 'file: times.csv'")

    @field_validator("file")
    @classmethod
    def _absolute(cls, file: str, info: ValidationInfo) -> str:
        path = Path((info.context or {}).get("folder", "."), file).absolute()
        _read(path)
        return str(path)

    @property
    def times_s(self) -> tuple[float, ...]:
        """The times in the file, seconds; read anew at each call."""
        return _read(Path(self.file))

    def _mean(self) -> float:
        return math.fsum(times := self.times_s) / len(times)


def _read(path: Path) -> tuple[float, ...]:
    try:
        lines = path.read_text("utf-8").splitlines() if path.is_file() else None
    except (OSError, ValueError):
        lines = None
    if lines is None:
        fail(f"cannot read {shown(path.name)}; give a text file of seconds, one per line")
    times = []
    for number, line in enumerate(lines, 1):
        try:
            times += [float(line)] if line.strip() else []
        except ValueError:
            times.append(math.nan)
        if times and not (math.isfinite(times[-1]) and times[-1] > 0):
            fail(f"line {number} of the file is {shown(line)}; must be one positive number of seconds")
    return tuple(times) or fail("the file is empty; it needs a number of seconds on at least one line")


_KINDS: dict[str, type[_Times]] = {
    "constant": Constant,
    "uniform": Uniform,
    "exponential": Exponential,
    "shifted-exponential": ShiftedExponential,
    "lognormal": LogNormal,
    "gamma": Gamma,
    "pareto": Pareto,
    "empirical": Empirical,
}


def _pick(data: Any, _: Any, info: ValidationInfo) -> Any:
    """Validate with the one class that is meant, so that errors speak of that one only."""
    if isinstance(data, _Times):
        return data
    if not isinstance(data, dict):
        fail(f"must be such as {{distribution: constant, value: 30 ms}}, not {shown(data)}")
    kind = data.get("distribution")
    if not isinstance(kind, str) or kind not in _KINDS:
        fail(f"{shown(kind)} is not a distribution{nearest(kind, _KINDS)}", "distribution")
    return _KINDS[kind].model_validate(data, context=info.context)


Distribution = Annotated[
    Constant | Uniform | Exponential | ShiftedExponential | LogNormal | Gamma | Pareto | Empirical,
    WrapValidator(_pick),
]


class Compute(Section):
    """The time of one gradient (one mini-batch) on a worker of speed 1: drawn from `time`, or FLOPs / rate.

    With `peak` (FLOP/s) a gradient takes the workload's FLOPs / (peak × `efficiency`) seconds.
    """

    time: Distribution | None = None
    peak: FlopRate | None = None
    efficiency: float = Field(1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.time is None) == (self.peak is None):
            fail("give exactly one of time ({distribution: constant, value: 30 ms}) and peak ('312 TFLOP/s')")
        return self
