"""Recommendations for clusters whose best strategy is known."""

from typing import Any

from lockstep import Scenario
from lockstep.recommendation import Recommendation
from tests.support.scenarios import scenario

WORKERS, GRADIENT_S, BATCH = 4, 0.01, 32


def cluster(exchange_s: float = 0.0, **changes: Any) -> Scenario:
    """Four workers of constant speed whose ring all-reduce takes `exchange_s` seconds."""
    network = {}
    if exchange_s:
        sent = 2 * (WORKERS - 1) / WORKERS * 4 * 1_000_000  # bytes of each worker
        network = {"bandwidth": f"{sent / exchange_s!r} B/s"}
    return scenario(cluster__network=network, workload__parameters=1_000_000, **changes)


def found(what: Scenario, *names: str, budget: int = 40, **options: Any) -> Recommendation:
    return Recommendation(what, None, names, 1).run(budget, **options)
