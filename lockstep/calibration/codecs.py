"""What encoding and decoding cost: bytes of the plain vector a second, of each codec."""

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import get_args

import torch

from lockstep.calibration.estimates import Estimates, rate, resampled
from lockstep.calibration.process import alone, timed
from lockstep.scenarios.machine import CodecName
from lockstep.strategies.codecs import Codec
from lockstep.workloads import codecs

SIZES = (64_000, 512_000, 4_000_000, 25_000_000)  # bytes of the plain vector
_LEAST, _LEAST_S, _PACE_S = 7, 0.05, 0.001
_RATIO = 0.01  # what top-k and random-k send, the default


def measure(sizes: Sequence[int] = SIZES, least_s: float = _LEAST_S) -> Estimates:
    """`codecs.NAME.encode` and `.decode`; in the evidence the rates at each size."""
    settings: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    evidence: dict[str, dict[str, list[float]]] = {}
    for name in get_args(CodecName):
        for way, samples in alone(_measure, name, tuple(sizes), least_s).items():
            key = f"codecs.{name}.{way}"
            settings[key], (intervals[key],) = resampled(partial(rate, sizes), samples)
            rates = [nbytes / median(times) for nbytes, times in zip(sizes, samples, strict=True)]
            evidence.setdefault(name, {})[way] = rates
    return Estimates(settings, intervals, {"codecs": {"sizes": list(sizes), "rates": evidence}})


def _measure(name: str, sizes: Sequence[int], least_s: float) -> dict[str, list[list[float]]]:
    """Seconds of "encode" and "decode": a list for each size."""
    codec, found = Codec(name, _RATIO), dict[str, list[list[float]]](encode=[], decode=[])
    for nbytes in sizes:
        vector = torch.randn(nbytes // 4, generator=torch.Generator().manual_seed(0))
        body = codecs.encode(vector, codec, 1)
        encode = partial(codecs.encode, vector, codec, 1)
        decode = partial(codecs.decode, body, codec, len(vector))
        for times, function in ((found["encode"], encode), (found["decode"], decode)):
            timed(function, 2, 0.0)
            times.append(timed(function, _LEAST, least_s, _PACE_S))
    return found
