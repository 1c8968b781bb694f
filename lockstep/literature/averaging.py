"""Claims about averaging the models of workers now and then."""

import numpy as np

import lockstep
from lockstep.literature.claim import Check, Claim, Interval, Runs
from scenarios import Scenario, override

BLACK = "Black and Kokorin 2016, Distributed deep learning (Skymind)"


def against_one_machine(scenario: Scenario) -> dict[str, float]:
    """Largest difference of a parameter to one machine's with the n-fold mini-batch, ÷ the largest parameter."""
    together = scenario.workload.batch_size * scenario.cluster.workers
    alone = override(override(scenario, "cluster.workers", 1), "workload.batch_size", together)
    averaged, single = (lockstep.simulate(each).parameters for each in (scenario, alone))
    assert averaged is not None
    assert single is not None
    return {"difference": float(np.abs(averaged - single).max() / np.abs(single).max())}


def _every_step(runs: Runs) -> list[Check]:
    plain = runs.mean("every mini-batch", "difference")
    return [Check("largest difference of a parameter, relative", plain, below=1e-4)]


PERIODS, RATES = (1, 10, 20, 50, 100, 200), (0.1, 0.2, 0.5)


def _period(runs: Runs) -> list[Check]:
    def error(period: int) -> np.ndarray:
        return runs.tuned([f"period {period}, rate {rate}" for rate in RATES], "loss", "error")

    def more(period: int) -> Interval:
        return Interval.of(error(period) - error(1))

    return [
        Check("error at period 10 − at period 1, percentage points", more(10), below=1.0),
        Check("error at period 20 − at period 1, percentage points", more(20), below=1.0),
        Check("error at period 200 − at period 1, percentage points", more(200), above=0.0),
    ]


CLAIMS = [
    Claim(
        name="averaging-every-step",
        statement="Averaging parameters after every mini-batch of m samples on n workers is one machine with "
        "n·m samples, without momentum.",
        source=BLACK,
        published="identical",
        variants={"every mini-batch": {}},
        figures=against_one_machine,
        checks=_every_step,
    ),
    Claim(
        name="averaging-period",
        statement="Averaging every 10 to 20 mini-batches still does well; longer periods cost accuracy.",
        source=f"{BLACK}, after Su and Chen 2015",
        published="10–20 'acceptably well'; accuracy 'reduced as the period is increased'",
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
]
