"""Claims about what asynchrony does to the dynamics of learning."""

from collections.abc import Sequence

import numpy as np

from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario
from lockstep.studies.reproductions.claim import Check, Claim, Runs
from lockstep.studies.reproductions.metrics import Array

WORKERS = (4, 8, 16)
REPLICAS = 100


def momentum(scenario: Scenario) -> dict[str, float]:
    """The momentum μ and the rate ε with which the mean of many runs moves.

    E[w_{t+1} − w_t] = μ·E[w_t − w_{t−1}] − ε·E∇f(w_t), fitted to means over replicas with orders of updates
    of their own. Least squares would find too little momentum, because the means on the right are noisy too;
    so the means over one half of the replicas are instruments for those over the other half, and vice versa.
    """
    first = scenario.seed * REPLICAS
    half = [range(first, first + REPLICAS // 2), range(first + REPLICAS // 2, first + REPLICAS)]
    (mean, curvature), (other, _) = (_mean_path(scenario, seeds) for seeds in half)
    found = (_fitted(mean, other, curvature) + _fitted(other, mean, curvature)) / 2
    return {"momentum": float(found[0]), "rate": float(found[1])}


def _mean_path(scenario: Scenario, seeds: Sequence[int]) -> tuple[Array, Array]:
    """The mean over seeds of (w − w*) ÷ (w₀ − w*), shape (updates + 1, dimension), and the curvatures.

    In a quadratic without noise that is a function of the order of updates, whatever w* is.
    """
    from lockstep.simulator.engine import Simulation
    from lockstep.workloads.problems import Quadratic

    paths, curvature = [], np.empty(0)
    for seed in seeds:
        simulation = Simulation(Plan.of(scenario.model_copy(update={"seed": seed})))
        simulation.run()
        problem = simulation.learner
        assert isinstance(problem, Quadratic)
        (snapshots,) = simulation.snapshots.values()  # of every version: 64 are no more than are kept
        path = [
            problem.initial().numpy(),
            *(parameters.numpy() for _, parameters in snapshots.taken.values()),
        ]
        curvature = problem.curvature.numpy().astype(float)
        paths.append(1 - np.array(path, float) / problem.optimum.numpy())
    return np.mean(paths, axis=0), curvature


def _fitted(mean: Array, instrument: Array, curvature: Array) -> Array:
    """(μ, ε), such that what they leave unexplained is orthogonal to the instrument's terms."""

    def terms(path: Array) -> Array:
        return np.stack([np.diff(path, axis=0)[:-1].ravel(), -(curvature * path[1:-1]).ravel()])

    next_steps = np.diff(mean, axis=0)[1:].ravel()
    solution = np.linalg.solve(terms(instrument) @ terms(mean).T, terms(instrument) @ next_steps)
    return np.asarray(solution, float)


def _implicit(runs: Runs) -> list[Check]:
    return [
        Check(
            f"momentum with {n} workers ({1 - 1 / n:.4g})",
            runs.mean(f"{n} workers", "momentum"),
            1 - 1 / n - 0.02,
            1 - 1 / n + 0.02,
        )
        for n in WORKERS
    ]


CLAIMS = [
    Claim(
        name="implicit-momentum",
        statement="Asynchrony begets momentum: n workers move on average as one with momentum 1 − 1/n.",
        source="Mitliagkas, Zhang, Hadjis and Ré 2016",
        published="1 − 1/n, at the rate η/n (quadratic, exponential times)",
        variants={f"{n} workers": {"cluster.workers": n} for n in WORKERS},
        measure=momentum,
        checks=_implicit,
    ),
]
