"""What an update costs a server, by update rule and size: the very code of a real run, timed."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from statistics import fmean, median, pstdev
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import torch

from lockstep.analysis.student import half_width_of
from lockstep.calibration.estimates import Estimates, line, resampled
from lockstep.calibration.process import alone, timed
from lockstep.executor.devices import Wanted, own, settle
from lockstep.job.arithmetic import OnTensors
from lockstep.loopback import no_slope
from lockstep.strategies import Message
from lockstep.strategies import corrections as known
from lockstep.strategies.corrections import UpdateRule
from lockstep.strategies.optimizers import Optimizer, block_momentum, optimizer, server_optimizer
from lockstep.strategies.parameter_server import Shard

SIZES = (4_000, 32_000, 256_000, 2_000_000, 25_000_000)  # bytes of a shard
PLAIN = "sgd"  # the rule that the profile's overhead is of: most strategies have it
_LEAST, _LEAST_S, _PACE_S = 15, 0.05, 0.001
_ENOUGH = 2_000_000  # bytes that take longer than a few, whatever the rule
_FRESH = 4  # pushes that take turns, so that none is in a cache because it was the last one


def update_rules() -> dict[str, tuple[UpdateRule, int]]:
    """What a server can do with how many pushes at once: every optimizer, and every correction with sgd."""
    sgd = optimizer(optimizer="sgd")
    corrections = {
        "dynsgd": known.scaled_by_staleness(),
        "staleness-aware": known.rate_over_staleness(),
        "adag-distance": known.scaled_by_distance(),
        "dc-asgd": known.delay_compensated(),
        "dc-asgd, adaptive": known.delay_compensated(adaptive_compensation=True),
    }
    return {
        **{name: (UpdateRule(optimizer(optimizer=name)), 1) for name in get_args(Optimizer)},
        "deltas, added": (UpdateRule(server_optimizer()), 1),
        "bmuf": (UpdateRule(block_momentum(0.9, 1.0, nesterov=True)), 1),
        **{name: (UpdateRule(sgd, correction), 1) for name, correction in corrections.items()},
        "sgd, mean of 4": (UpdateRule(sgd), 4),
    }


def measure(sizes: Sequence[int] = SIZES, least_s: float = _LEAST_S, wanted: Wanted = "cpu") -> Estimates:
    """`apply_overhead` of plain sgd, and `memory_bandwidth`, the geometric mean of all rules'.

    A rule's own are those of the line through its smallest and its largest size. In the evidence `off` is,
    for each size, the time by the profile's two numbers ÷ the measured one, minus 1. Raises RunFailed if the
    largest size takes some rule no longer than the smallest. wanted: where servers have their vectors.
    """
    found = {name: alone(_measure, name, tuple(sizes), least_s, wanted) for name in update_rules()}
    fitted = {name: resampled(partial(line, touched), samples) for name, (touched, samples) in found.items()}
    for name, (its, _) in fitted.items():
        if its.bandwidth == math.inf:
            first, *_, last = map(median, found[name][1])
            raise no_slope(f"an update by {name}", (sizes[0], sizes[-1]), (first, last))
    overhead, interval = fitted[PLAIN][0].overhead, fitted[PLAIN][1][0]
    logs = np.log([its.bandwidth for its, _ in fitted.values()])
    bandwidth, spread = float(np.exp(logs.mean())), float(half_width_of(logs))
    evidence: dict[str, Any] = {"sizes": list(sizes), "rules": {}}
    for name, (touched, samples) in found.items():
        its, (overheads, bandwidths) = fitted[name]
        seconds = [median(times) for times in samples]
        expected = overhead + np.array(touched) / bandwidth
        evidence["rules"][name] = {
            "passes": touched[0] // sizes[0],
            "seconds": seconds,
            "overhead": its.overhead,
            "overhead_interval": list(overheads),
            "bandwidth": its.bandwidth,
            "bandwidth_interval": list(bandwidths),
            "off": [float(off) for off in expected / seconds - 1],
        }
    return Estimates(
        {"apply_overhead": overhead, "memory_bandwidth": bandwidth},
        {
            "apply_overhead": interval,
            "memory_bandwidth": (bandwidth * math.exp(-spread), bandwidth * math.exp(spread)),
        },
        {"apply": evidence},
    )


def _measure(
    name: str, sizes: Sequence[int], least_s: float, wanted: Wanted
) -> tuple[list[int], list[list[float]]]:
    """The bytes that a rule touches at each size, and the times (s).

    Sizes rise, and each rule has a process of its own: how memory is had depends on what was had before.
    """
    rule, pushes = update_rules()[name]
    device = torch.device(own(wanted))
    found = [_times(rule, pushes, nbytes // 4, least_s, device) for nbytes in sizes]
    touched, samples = zip(*found, strict=True)
    return list(touched), list(samples)


def step(name: str, parameters: int, wanted: Wanted = "auto") -> Estimates:
    """What a step of an optimizer takes that has so many parameters, on the device that gradients are on.

    `apply_overhead` and `memory_bandwidth` are the optimizer's own: of the line through a step of a few
    parameters and one of so many, or of as many as tell the two apart.
    """
    sizes = min(SIZES), max(_ENOUGH, 4 * parameters)
    found = [alone(_step, name, nbytes // 4, wanted) for nbytes in (*sizes, 4 * parameters)]
    touched, samples = zip(*found, strict=True)
    fitted, (overheads, bandwidths) = resampled(partial(line, touched[:2]), samples[:2])
    seconds = samples[-1]
    seen = {"optimizer": name, "mean": fmean(seconds), "cv": pstdev(seconds) / fmean(seconds)}
    if fitted.bandwidth == math.inf:
        return Estimates({}, {}, {"update": seen})
    return Estimates(
        {"apply_overhead": fitted.overhead, "memory_bandwidth": fitted.bandwidth},
        {"apply_overhead": overheads, "memory_bandwidth": bandwidths},
        {"update": seen},
    )


def _step(name: str, length: int, wanted: Wanted) -> tuple[int, list[float]]:
    rule, pushes = update_rules()[name]
    return _times(rule, pushes, length, _LEAST_S, torch.device(own(wanted)))


def _times(
    rule: UpdateRule, pushes: int, length: int, least_s: float, device: torch.device
) -> tuple[int, list[float]]:
    """Bytes touched by an update of `length` float32 parameters, and the seconds of many."""
    generator = torch.Generator().manual_seed(0)
    parameters = torch.randn(length, generator=generator).to(device)
    arithmetic, charged = OnTensors(parameters), list[int]()

    async def apply(function: Callable[[], Any], nbytes: int) -> Any:
        charged.append(nbytes)
        return function()

    node: Any = SimpleNamespace(
        saved=None,
        children=(),
        initial_parameters=lambda: parameters,
        shards=[(slice(0, length),)],
        shard=0,
        apply=apply,
        concatenate=arithmetic.concatenate,
        to_send=arithmetic.to_send,
        add=arithmetic.add,
    )
    shard = Shard(node, rule)
    many = max(_FRESH, pushes)
    bodies: list[Any] = [torch.randn(length, generator=generator).to(device) for _ in range(many)]
    turn = 0

    def update() -> None:
        nonlocal turn
        turn += 1
        messages = []
        for number in range(pushes):
            body = bodies[(turn + number) % len(bodies)]
            messages.append(Message("push", number, body, version=shard.version, batches=1))
            shard.pulled = {**shard.pulled, number: {shard.version: parameters}}
        with suppress(StopIteration):  # it has nothing to wait for
            _applied(shard, messages).send(None)
        settle(device)

    for _ in range(3):  # the moments are vectors then, and memory has been had
        update()
    return charged[-1], timed(update, _LEAST, least_s, _PACE_S)


async def _applied(shard: Shard, messages: list[Message]) -> None:
    await shard.apply(messages, over=len(messages))
