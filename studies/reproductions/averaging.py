"""Claims about averaging the models of workers now and then."""

from functools import partial

import numpy as np

import lockstep
from lockstep.scenarios import Scenario, override
from lockstep.studies.reproductions.claim import Check, Claim, Interval, Metrics, Runs
from lockstep.studies.reproductions.metrics import Array, learned

BLACK = "Black and Kokorin 2016 (Skymind), part 1"


def against_one_machine(scenario: Scenario) -> dict[str, float]:
    """Largest difference of a parameter to one machine's with the n-fold mini-batch, ÷ the largest."""
    together = scenario.workload.batch_size * scenario.cluster.workers
    alone = override(override(scenario, "cluster.workers", 1), "workload.batch_size", together)
    averaged, single = (lockstep.simulate(each).parameters for each in (scenario, alone))
    assert averaged is not None
    assert single is not None
    return {"difference": float(np.abs(averaged - single).max() / np.abs(single).max())}


UPDATERS = {"momentum": 0.05, "rmsprop": 0.001, "adam": 0.001}  # and their rates
ROUNDING = 1e-4  # of float32, amplified by 20 steps


def _every_step(runs: Runs) -> list[Check]:
    return [Check("difference, SGD", runs.mean("sgd", "difference"), below=ROUNDING)]


def _updaters(runs: Runs) -> list[Check]:
    return [Check(f"difference, {name}", runs.mean(name, "difference"), above=ROUNDING) for name in UPDATERS]


PERIODS, RATES = (1, 10, 20, 200), (0.1, 0.2, 0.5)


def _period(runs: Runs) -> list[Check]:
    def error(period: int) -> Array:
        return runs.tuned([f"period {period}, rate {rate}" for rate in RATES], "loss", "error")

    def more(period: int) -> Interval:
        return Interval.of(error(period) - error(1))

    return [
        Check("error at period 10 − at 1, percentage points", more(10), below=1.0),
        Check("error at period 20 − at 1", more(20), below=1.0),
        Check("error at period 200, the whole run, − at 1", more(200), above=0.0),
    ]


STATE_RATES = {"momentum": (0.1, 0.2), "adam": (0.01, 0.03)}


def with_traffic(scenario: Scenario) -> Metrics:
    """What is learned, and the bytes that are sent for it."""
    result = lockstep.simulate(scenario)
    return learned(scenario, result=result) | {"bytes": float(result.metrics["bytes_sent"])}


def _state(runs: Runs) -> list[Check]:
    checks = []
    for name, rates in STATE_RATES.items():
        variants = {s: [f"{name}, {s}, rate {rate}" for rate in rates] for s in ("keep", "average")}
        loss, sent = ({s: runs.tuned(variants[s], "loss", f) for s in variants} for f in ("loss", "bytes"))
        better = Interval.of_ratio(loss["keep"], loss["average"])
        traffic = Interval.of_ratio(sent["average"], sent["keep"])
        checks.append(Check(f"loss with {name}, kept ÷ averaged", better, above=1.0))
        checks.append(Check(f"bytes with {name}, averaged ÷ kept", traffic, above=1.9))
    return checks


LONG, LOCAL_RATE, TARGET = 64, 0.5, 0.055


def _adaptive(runs: Runs) -> list[Check]:
    def slower(than: str, metric: str) -> Interval:
        return Interval.of_ratio(runs[than, metric], runs["adaptive", metric])

    every, rarely = "every step", f"every {LONG}"
    return [
        Check(f"s to a loss of {TARGET}, {every} ÷ adaptive", slower(every, "seconds"), above=1.0),
        Check(f"s to a loss of {TARGET}, {rarely} ÷ adaptive", slower(rarely, "seconds"), above=1.0),
        Check(f"samples/s, {every} ÷ adaptive", slower(every, "samples per s"), below=1.0),
        Check(f"samples/s, {rarely} ÷ adaptive", slower(rarely, "samples per s"), above=1.0),
    ]


CLAIMS = [
    Claim(
        name="averaging-every-step",
        statement="Averaging parameters after every mini-batch of m samples on n workers is one machine with "
        "n·m samples.",
        source=BLACK,
        published="identical (SGD without momentum)",
        variants={"sgd": {}},
        measure=against_one_machine,
        checks=_every_step,
    ),
    Claim(
        name="averaging-updaters",
        statement="With an updater that has a state, averaging after every mini-batch is not one machine.",
        source=BLACK,
        published="the identity needs 'no updater (i.e., no momentum etc)'",
        variants={
            name: {"strategy.optimizer": name, "strategy.learning_rate": rate}
            for name, rate in UPDATERS.items()
        },
        measure=against_one_machine,
        checks=_updaters,
    ),
    Claim(
        name="averaging-period",
        statement="Averaging every 10 to 20 mini-batches still does well; longer periods cost accuracy.",
        source=f"{BLACK}, after Su and Chen 2015",
        published="10–20 'acceptably well'; 'reduced as the averaging period is increased'",
        variants={
            f"period {period}, rate {rate}": {
                "strategy.averaging_period": period,
                "strategy.learning_rate": rate,
            }
            for period in PERIODS
            for rate in RATES
        },
        checks=_period,
    ),
    Claim(
        name="averaging-state",
        statement="Averaging the optimizer's state too makes for faster convergence, and multiplies traffic.",
        source=BLACK,
        published="faster, at the cost of 'doubling – or more' the transfers",
        variants={
            f"{name}, {state}, rate {rate}": {
                "strategy.optimizer": name,
                "strategy.optimizer_state": state,
                "strategy.learning_rate": rate,
            }
            for name, rates in STATE_RATES.items()
            for state in ("keep", "average")
            for rate in rates
        },
        measure=with_traffic,
        checks=_state,
        seeds=8,
    ),
    Claim(
        name="adaptive-period",
        statement="A period that shrinks with the loss reaches a low one before a long period, and before "
        "averaging every step.",
        source="Wang and Joshi 2019 (AdaComm)",
        published="CIFAR-10: a third of the time that averaging every step takes",
        variants={
            "every step": {
                "strategy": {"name": "local-sgd", "averaging_period": 1, "learning_rate": LOCAL_RATE}
            },
            f"every {LONG}": {
                "strategy": {"name": "local-sgd", "averaging_period": LONG, "learning_rate": LOCAL_RATE}
            },
            "adaptive": {},
        },
        measure=partial(learned, target=TARGET),
        checks=_adaptive,
        seeds=8,
    ),
]
