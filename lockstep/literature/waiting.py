"""Claims about waiting for slow workers, and not waiting for them."""

from functools import partial

import numpy as np

from lockstep.literature.claim import Array, Check, Claim, Interval, Runs
from lockstep.literature.figures import learned

TARGET = 0.15  # held-out loss

BOUNDS, NOBODY_WAITS = (0, 1, 2, 4, 8), 10_000
SSP_RATES = (0.02, 0.05, 0.1)


def _ssp(runs: Runs) -> list[Check]:
    def seconds(bounds: tuple[int, ...]) -> Array:
        return runs.tuned(
            [f"bound {bound}, rate {rate}" for bound in bounds for rate in SSP_RATES], "seconds"
        )

    def at_one_rate(bound: int, figure: str) -> Array:
        return runs[f"bound {bound}, rate {SSP_RATES[1]}", figure]

    between = seconds(BOUNDS[1:])
    waits = at_one_rate(4, "updates per s") / at_one_rate(0, "updates per s")
    loses = at_one_rate(NOBODY_WAITS, "updates") / at_one_rate(0, "updates")
    return [
        Check("updates per s, bound 4 ÷ bound 0", Interval.of(waits), above=1.0),
        Check("updates to the target, no bound ÷ bound 0, rate 0.05", Interval.of(loses), above=1.0),
        Check("s to the target, bound 0 ÷ best between", Interval.of(seconds((0,)) / between), above=1.0),
        Check(
            "s to the target, no bound ÷ best between",
            Interval.of(seconds((NOBODY_WAITS,)) / between),
            above=1.0,
        ),
    ]


BACKUPS = (1, 2, 3)
BARRIER_RATES, FREE_RATES = (0.2, 0.5, 1.0), (0.02, 0.05, 0.1)


def _backup(runs: Runs) -> list[Check]:
    backup = runs.tuned([f"{b} backups, rate {rate}" for b in BACKUPS for rate in BARRIER_RATES], "seconds")
    barrier = runs.tuned([f"synchronous, rate {rate}" for rate in BARRIER_RATES], "seconds")
    free = runs.tuned([f"asynchronous, rate {rate}" for rate in FREE_RATES], "seconds")
    return [
        Check("s to the target, synchronous ÷ backups", Interval.of(barrier / backup), above=1.0),
        Check("s to the target, asynchronous ÷ backups", Interval.of(free / backup), above=1.0),
    ]


CLAIMS = [
    Claim(
        name="ssp-bound",
        statement="A bound on staleness trades waiting against loss: one between synchronous and asynchronous "
        "is the fastest to the target.",
        source="Ho et al. 2013; Li et al. 2014",
        published="sparse logistic regression: fastest at 8 of {0 … 16}, 50% idle at 0, 1.7% at 16",
        variants={
            f"bound {bound}, rate {rate}": {"strategy.bound": bound, "strategy.learning_rate": rate}
            for bound in (*BOUNDS, NOBODY_WAITS)
            for rate in SSP_RATES
        },
        figures=partial(learned, target=TARGET),
        checks=_ssp,
    ),
    Claim(
        name="backup-workers",
        statement="With random stragglers, backup workers reach a target before synchronous and asynchronous "
        "training do.",
        source="Chen et al. 2016",
        published="Inception: 4 backups to 96 workers: shorter steps than without; better and sooner than asynchronous",
        variants={
            f"{b} backups, rate {rate}": {"strategy.backups": b, "strategy.learning_rate": rate}
            for b in BACKUPS
            for rate in BARRIER_RATES
        }
        | {
            f"{name}, rate {rate}": {"strategy": {"name": name, "learning_rate": rate}}
            for name, rates in (("synchronous", BARRIER_RATES), ("asynchronous", FREE_RATES))
            for rate in rates
        },
        figures=partial(learned, target=TARGET),
        checks=_backup,
    ),
]
