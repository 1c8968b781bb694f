"""How long one gradient takes: `cluster.compute`. All times are seconds."""

from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ModelWrapValidatorHandler, ValidationInfo, field_validator, model_validator

from lockstep.scenarios import kineto
from lockstep.scenarios.files import beside, rows
from lockstep.scenarios.section import Section, nearest, one_of
from lockstep.scenarios.units import TIME, Duration, FlopRate, PositiveDuration, fail, shown

_Cv = Annotated[float, Field(ge=1e-6, le=100, description="standard deviation / mean, such as 'cv: 0.2'")]


class _WithMean(Section):
    distribution: str
    mean: PositiveDuration

    @property
    def mean_s(self) -> float:
        """The mean in seconds."""
        return self.mean


class Constant(Section):
    """Always `value`."""

    distribution: Literal["constant"]
    value: Duration

    @property
    def mean_s(self) -> float:
        """The mean in seconds."""
        return self.value


class Uniform(Section):
    """Uniform in [`low`, `high`]."""

    distribution: Literal["uniform"]
    low: Duration
    high: Duration

    @property
    def mean_s(self) -> float:
        """The mean in seconds."""
        return self.low + (self.high - self.low) / 2

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            fail(f"must be at least low ({self.low!r} s), not {self.high!r} s", "high")
        return self


class Exponential(_WithMean):
    """Exponential with `mean`."""

    distribution: Literal["exponential"]


class ShiftedExponential(_WithMean):
    """`shift` plus an exponential with `mean`."""

    distribution: Literal["shifted-exponential"]
    shift: Duration

    @property
    def mean_s(self) -> float:
        """The mean in seconds."""
        return self.shift + self.mean


class LogNormal(_WithMean):
    """Log-normal with `mean` and coefficient of variation `cv`."""

    distribution: Literal["lognormal"]
    cv: _Cv


class Gamma(_WithMean):
    """Gamma with `mean` and coefficient of variation `cv`."""

    distribution: Literal["gamma"]
    cv: _Cv


class Pareto(_WithMean):
    """Pareto with `mean`; P(time > t) falls as t^-`shape`, and only a shape above 1 has a mean."""

    distribution: Literal["pareto"]
    shape: float = Field(gt=1, le=1e6, description="its tail index, such as 'shape: 2.5'")


class Empirical(Section):
    """Drawn from the times in `file`, relative to the scenario's: one number of seconds per line, or a trace.

    A file that ends in .json or .json.gz is a trace of the PyTorch profiler (scenarios/kineto.py).
    """

    distribution: Literal["empirical"]
    file: str = Field(
        description="a text file of seconds, one per line, such as 'file: times.csv', or a profiler's trace"
    )

    @field_validator("file")
    @classmethod
    def _absolute(cls, file: str, info: ValidationInfo) -> str:
        path = beside(file, info)
        _read(path)
        return str(path)

    @property
    def times_s(self) -> tuple[float, ...]:
        """The times in the file, seconds; read anew at each call."""
        return _read(Path(self.file))

    @property
    def mean_s(self) -> float:
        """The mean in seconds; reads the file too."""
        return fmean(self.times_s)


def _seconds(line: str) -> float | None:
    seconds = float(line)
    return seconds if TIME.admits(seconds) else None


def _read(path: Path) -> tuple[float, ...]:
    if kineto.is_trace(path):
        return kineto.gradients(path).times_s
    return rows(
        path, _seconds, "seconds", f"one positive number of seconds, from {TIME.least} to {TIME.most}"
    )


_Times = Constant | Uniform | Exponential | ShiftedExponential | LogNormal | Gamma | Pareto | Empirical
_KINDS: dict[str, type[Section]] = {
    get_args(kind.model_fields["distribution"].annotation)[0]: kind for kind in get_args(_Times)
}


def _distribution(data: Any) -> type[Section]:
    if not isinstance(data, dict):
        fail(f"must be such as {{distribution: constant, value: 30 ms}}, not {shown(data)}")
    kind = data.get("distribution")
    if not isinstance(kind, str) or kind not in _KINDS:
        fail(f"{shown(kind)} is not a distribution{nearest(kind, _KINDS)}", "distribution")
    return _KINDS[kind]


Distribution = Annotated[_Times, one_of(_distribution)]


class Compute(Section):
    """The time of one gradient (one mini-batch) on a worker of speed 1: drawn from `time`, or FLOPs / rate.

    With `peak` (FLOP/s) a gradient takes the workload's FLOPs / (peak × `efficiency`) seconds. `backward` is
    the share of that time spent in the backward pass. Not given: as in a trace that is `time`'s file, else as
    the model's layers say (2/3 for sizes only) where a gradient is computed in passes, else 0. `loading`: how
    long each of the `workload.loaders` takes to read a mini-batch; without loaders that is part of `time`.
    """

    time: Distribution | None = None
    peak: FlopRate | None = None
    efficiency: float = Field(1.0, ge=1e-6, le=1)
    backward: Annotated[float, Field(ge=0, lt=1)] | None = None
    loading: Distribution | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _as_traced(cls, data: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        compute = build(data)
        if "backward" in compute.model_fields_set or not isinstance(compute.time, Empirical):
            return compute
        path = Path(compute.time.file)
        if not kineto.is_trace(path):
            return compute
        return compute.model_copy(update={"backward": kineto.gradients(path).backward})

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.time is None) == (self.peak is None):
            fail("give exactly one of time ({distribution: constant, value: 30 ms}) and peak ('312 TFLOP/s')")
        return self
