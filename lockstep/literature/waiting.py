"""Claims about waiting for slow workers and slow networks, and not waiting for them."""

from functools import partial

import lockstep
from lockstep.literature.claim import Check, Claim, Figures, Interval, Runs
from lockstep.literature.figures import Array, learned
from scenarios import Scenario

TARGET = 0.15  # held-out loss
UNBOUNDED = 10_000


def _seconds(runs: Runs, bounds: tuple[int, ...], rates: tuple[float, ...]) -> Array:
    return runs.tuned([f"bound {bound}, rate {rate}" for bound in bounds for rate in rates], "seconds")


def _bounds(bounds: tuple[int, ...], rates: tuple[float, ...]) -> dict[str, dict[str, float]]:
    return {
        f"bound {bound}, rate {rate}": {"strategy.bound": bound, "strategy.learning_rate": rate}
        for bound in bounds
        for rate in rates
    }


SSP_BOUNDS, SSP_RATES = (0, 1, 2, 4, 8, UNBOUNDED), (0.035, 0.05, 0.07)


def _ssp(runs: Runs) -> list[Check]:
    def at_one_rate(bound: int, figure: str) -> Array:
        return runs[f"bound {bound}, rate {SSP_RATES[-1]}", figure]

    none, unbounded = (_seconds(runs, (bound,), SSP_RATES) for bound in (0, UNBOUNDED))
    best = _seconds(runs, SSP_BOUNDS[1:-1], SSP_RATES)
    waits = Interval.of_ratio(at_one_rate(4, "updates per s"), at_one_rate(0, "updates per s"))
    loses = Interval.of_ratio(at_one_rate(UNBOUNDED, "updates"), at_one_rate(0, "updates"))
    return [
        Check("updates/s, bound 4 ÷ bound 0", waits, above=1.0),
        Check(f"updates to a loss of {TARGET} at rate {SSP_RATES[-1]}, no bound ÷ bound 0", loses, above=1.0),
        Check("s to that loss, bound 0 ÷ best between", Interval.of_ratio(none, best), above=1.0),
        Check("s to that loss, no bound ÷ best between", Interval.of_ratio(unbounded, best), above=1.0),
    ]


DELAYS, DELAY_RATES = (0, 1, 2, 4, 16), (0.015, 0.03, 0.06, 0.12)


def with_idleness(scenario: Scenario) -> Figures:
    """What is learned, and the percentage of their time in which workers do not compute."""
    result = lockstep.simulate(scenario)
    return learned(scenario, TARGET, result) | {"idle": 100 * (1 - result.metrics["breakdown"]["compute"])}


def _delay(runs: Runs) -> list[Check]:
    def idle(bound: int) -> Interval:
        return runs.mean(f"bound {bound}, rate {DELAY_RATES[0]}", "idle")

    ends = [_seconds(runs, (bound,), DELAY_RATES) for bound in (DELAYS[0], DELAYS[-1])]
    best = _seconds(runs, DELAYS[1:-1], DELAY_RATES)
    return [
        Check("time idle at bound 0, %", idle(0), above=40.0),
        Check("time idle at bound 16, %", idle(16), below=5.0),
        Check("s to the target, bound 0 ÷ best between", Interval.of_ratio(ends[0], best), above=1.0),
        Check("s to the target, bound 16 ÷ best between", Interval.of_ratio(ends[1], best), above=1.0),
    ]


BACKUPS = (2, 4)
BARRIER = ((0.0, 0.7), (0.0, 1.0), (0.9, 0.1), (0.9, 0.2))  # momentum, rate
FREE = ((0.0, 0.035), (0.0, 0.05), (0.0, 0.07), (0.9, 0.0035), (0.9, 0.005))
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
    with_momentum = Interval.of_ratio(seconds(("asynchronous",), FREE[3:]), seconds(backups, BARRIER[2:]))
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
        variants=_bounds(SSP_BOUNDS, SSP_RATES),
        figures=partial(learned, target=TARGET),
        checks=_ssp,
        seeds=8,
    ),
    Claim(
        name="bounded-delay",
        statement="A bounded delay hides the network, and one in between is the fastest to the target.",
        source="Li et al. 2014, §5.1",
        published="sparse logistic regression: 8 of {0 … 16} is fastest; idle 50% at 0, 1.7% at 16",
        variants=_bounds(DELAYS, DELAY_RATES),
        figures=with_idleness,
        checks=_delay,
    ),
    Claim(
        name="backup-workers",
        statement="With random stragglers, backup workers reach a target before both synchronous and "
        "asynchronous training.",
        source="Chen et al. 2016",
        published="Inception, 96 workers and 4 backups: sooner, and to a better accuracy, than either",
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
        figures=partial(learned, target=BACKUP_TARGET),
        checks=_backup,
        seeds=8,
    ),
]
