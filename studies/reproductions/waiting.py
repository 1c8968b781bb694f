"""Claims about waiting for slow workers and slow networks, and not waiting for them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import lockstep
from lockstep.scenarios import Scenario
from lockstep.studies.reproductions.claim import Check, Claim, Interval, Metrics, Runs
from lockstep.studies.reproductions.metrics import Array, learned

TARGET = 0.15  # held-out loss
UNBOUNDED = 10_000


Rates = Mapping[int, Sequence[float]]  # by bound, such that neither the least nor the largest is the best


def _names(rates: Rates, bounds: Iterable[int]) -> list[str]:
    return [f"bound {bound}, rate {rate}" for bound in bounds for rate in rates[bound]]


def _bounds(rates: Rates) -> dict[str, dict[str, float]]:
    changes = [{"strategy.bound": b, "strategy.learning_rate": rate} for b in rates for rate in rates[b]]
    return dict(zip(_names(rates, rates), changes, strict=True))


def _ends(runs: Runs, rates: Rates) -> list[Check]:
    """Whether the best of the bounds in between is faster than the least and the largest bound."""
    first, *between, last = rates
    best = runs.tuned(_names(rates, between), "seconds")
    checks = []
    for bound in (first, last):
        name = "no bound" if bound == UNBOUNDED else f"bound {bound}"
        ratio = Interval.of_ratio(runs.tuned(_names(rates, [bound]), "seconds"), best)
        checks.append(Check(f"s to a loss of {TARGET}, {name} ÷ best between", ratio, above=1.0))
    return checks


SSP = dict.fromkeys((0, 1, 2, 4, 8, UNBOUNDED), (0.035, 0.05, 0.07))


def _ssp(runs: Runs) -> list[Check]:
    def ratio(a: int, b: int, metric: str) -> Interval:
        return Interval.of_ratio(runs[f"bound {a}, rate 0.05", metric], runs[f"bound {b}, rate 0.05", metric])

    loses = f"updates to a loss of {TARGET} at one rate, no bound ÷ bound 0"
    return [
        Check("updates/s, bound 4 ÷ bound 0", ratio(4, 0, "updates per s"), above=1.0),
        Check(loses, ratio(UNBOUNDED, 0, "updates"), above=1.0),
        *_ends(runs, SSP),
    ]


DELAY = {0: (0.08, 0.1, 0.13), 1: (0.05, 0.07, 0.1), 2: (0.03, 0.04, 0.06), 16: (0.01, 0.015, 0.02)}


def with_idleness(scenario: Scenario) -> Metrics:
    """What is learned, and the percentage of their time in which workers do not compute."""
    result = lockstep.simulate(scenario)
    return learned(scenario, TARGET, result) | {"idle": 100 * (1 - result.metrics["breakdown"]["compute"])}


def _delay(runs: Runs) -> list[Check]:
    idle = {bound: runs.mean(_names(DELAY, [bound])[0], "idle") for bound in (0, 16)}
    return [
        Check("time idle at bound 0, %", idle[0], above=40.0),
        Check("time idle at bound 16, %", idle[16], below=5.0),
        *_ends(runs, DELAY),
    ]


BACKUPS = (2, 4)
BARRIER = ((0.0, 1.0), (0.9, 0.1), (0.9, 0.2))  # momentum, rate
FREE = ((0.0, 0.05), (0.0, 0.07), (0.9, 0.005))
BACKUP_TARGET = 0.1


def _backup(runs: Runs) -> list[Check]:
    backups = tuple(f"{b} backups" for b in BACKUPS)

    def seconds(names: tuple[str, ...], settings: tuple[tuple[float, float], ...]) -> Array:
        return runs.tuned(
            [f"{name}, momentum {m}, rate {r}" for name in names for m, r in settings], "seconds"
        )

    sooner = {
        "synchronous": Interval.of_ratio(seconds(("synchronous",), BARRIER), seconds(backups, BARRIER)),
        "asynchronous": Interval.of_ratio(seconds(("asynchronous",), FREE), seconds(backups, BARRIER)),
    }
    with_momentum = Interval.of_ratio(seconds(("asynchronous",), FREE[-1:]), seconds(backups, BARRIER[1:]))
    return [
        *(
            Check(f"s to a loss of {BACKUP_TARGET}, {name} ÷ backups", sooner[name], above=1.0)
            for name in sooner
        ),
        Check("the latter with momentum 0.9 in both", with_momentum),
    ]


CLAIMS = [
    Claim(
        name="ssp-bound",
        statement="A bound on staleness trades waiting against loss: one in between is the fastest to the "
        "target.",
        source="Ho et al. 2013 (SSP)",
        published="faster than both ends",
        variants=_bounds(SSP),
        measure=partial(learned, target=TARGET),
        checks=_ssp,
        seeds=8,
    ),
    Claim(
        name="bounded-delay",
        statement="A bounded delay hides the network, and one in between is the fastest to the target.",
        source="Li et al. 2014",
        published="sparse logistic regression: 8 of {0 … 16} is fastest; idle 50% at 0, 1.7% at 16",
        variants=_bounds(DELAY),
        measure=with_idleness,
        checks=_delay,
        seeds=10,
    ),
    Claim(
        name="backup-workers",
        statement="With random stragglers, backup workers reach a target before both synchronous and "
        "asynchronous training.",
        source="Chen et al. 2016",
        published="Inception, 50 workers: shortest steps with 4 backups; sooner than either",
        variants={
            f"{b} backups, momentum {m}, rate {r}": {
                "strategy": {"name": "backup-workers", "backups": b, "momentum": m, "learning_rate": r}
            }
            for b in BACKUPS
            for m, r in BARRIER
        }
        | {
            f"{name}, momentum {m}, rate {r}": {"strategy": {"name": name, "momentum": m, "learning_rate": r}}
            for name, settings in (("synchronous", BARRIER), ("asynchronous", FREE))
            for m, r in settings
        },
        measure=partial(learned, target=BACKUP_TARGET),
        checks=_backup,
        seeds=12,
    ),
]
