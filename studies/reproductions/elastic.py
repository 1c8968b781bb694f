"""Claims about elastic averaging."""

from itertools import pairwise

import numpy as np

from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario
from lockstep.studies.reproductions.claim import Check, Claim, Interval, Runs
from lockstep.studies.reproductions.metrics import Array

DOWNPOUR_RATES = {4: (0.05, 0.1, 0.2), 64: (0.002, 0.007, 0.02)}
ELASTIC_RATES = (0.2, 0.4, 0.6)
BETA = 0.9  # n·η·ρ, as in the paper
WORKERS = 4


def _period(runs: Runs) -> list[Check]:
    def loss(name: str, window: int) -> Array:
        rates = DOWNPOUR_RATES[window] if name == "downpour-blocking" else ELASTIC_RATES
        return runs.tuned([f"{name}, window {window}, rate {rate}" for rate in rates], "loss", "error")

    elastic = loss("aeasgd", 64) - loss("aeasgd", 4)
    sunk = loss("downpour-blocking", 64) - loss("downpour-blocking", 4)
    return [
        Check("AEASGD: error at window 64 − at 4, percentage points", Interval.of(elastic), below=1.0),
        Check("DOWNPOUR: error at window 64 − at 4, percentage points", Interval.of(sunk), above=5.0),
    ]


def spread(scenario: Scenario) -> dict[str, float]:
    """Run with AEASGD: how far the workers are from their mean, ÷ how far that is from the start.

    ‖xⁱ − x̄‖ at the last mini-batch of each worker, root mean square over workers; all at different times.
    """
    from lockstep.simulator.engine import Simulation

    simulation = Simulation(Plan.of(scenario))
    learner = simulation.learner
    assert learner is not None
    last: dict[int, Array] = {}
    gradient = learner.gradient

    def seen(parameters, worker, step, ready=None):  # type: ignore[no-untyped-def]
        last[worker] = parameters.numpy().astype(float)
        return gradient(parameters, worker, step, ready)

    learner.gradient = seen  # type: ignore[method-assign]
    simulation.run()
    models = np.array(list(last.values()))
    mean = models.mean(0)
    apart = np.sqrt(((models - mean) ** 2).sum(1).mean())
    moved = np.linalg.norm(mean - learner.initial().numpy())
    return {"spread": float(apart / moved)}


RHOS = (0.25, 1.0, 4.0)


def _rho(runs: Runs) -> list[Check]:
    def ratio(a: float, b: float) -> Interval:
        return Interval.of_ratio(runs[f"ρ = {a:g}", "spread"], runs[f"ρ = {b:g}", "spread"])

    return [
        Check(f"distance between workers, ρ = {b:g} ÷ ρ = {a:g}", ratio(b, a), below=1.0)
        for a, b in pairwise(RHOS)
    ]


CLAIMS = [
    Claim(
        name="easgd-period",
        statement="Elastic averaging bears long periods, at which DOWNPOUR fails.",
        source="Zhang, Choromanska and LeCun 2015",
        published="CIFAR-10, 4 workers, rates tuned for each: bears 64, where DOWNPOUR does poorly",
        variants={
            f"downpour-blocking, window {window}, rate {rate}": {
                "strategy": {
                    "name": "downpour-blocking",
                    "communication_window": window,
                    "learning_rate": rate,
                }
            }
            for window, rates in DOWNPOUR_RATES.items()
            for rate in rates
        }
        | {
            f"aeasgd, window {window}, rate {rate}": {
                "strategy.communication_window": window,
                "strategy.learning_rate": rate,
                "strategy.rho": BETA / (WORKERS * rate),
            }
            for window in DOWNPOUR_RATES
            for rate in ELASTIC_RATES
        },
        checks=_period,
    ),
    Claim(
        name="easgd-rho",
        statement="The larger ρ, the less the workers explore.",
        source="Zhang, Choromanska and LeCun 2015",
        published="a small ρ lets workers go farther from the centre",
        variants={f"ρ = {rho:g}": {"strategy.rho": rho} for rho in RHOS},
        measure=spread,
        checks=_rho,
    ),
]
