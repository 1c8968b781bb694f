"""Whether workers are in step: then they learn as one worker with all their mini-batches does."""

from collections.abc import Mapping
from typing import Any

from lockstep.strategies import Strategy, find
from lockstep.strategies.owners import Replicated
from lockstep.strategies.strategy import FACTORS


def averages_gradients(strategy: Strategy, parameters: Mapping[str, Any]) -> bool:
    """Whether all hold the same parameters, and the updates are whole gradients of theirs."""
    encoded = parameters.get("codec", "none") != "none"
    return strategy.owners is Replicated and strategy.pushes == "gradients" and not encoded


def in_step(row: Mapping[str, Any]) -> bool:
    """Whether every update of a run, a row of the table of results, was one gradient of every worker."""
    if row["status"] != "ok" or row["staleness.max"] != 0 or not row["updates"]:
        return False
    given = {key.removeprefix("strategy."): value for key, value in row.items() if value}
    strategy = find(row["strategy.name"], {factor: given[factor] for factor in FACTORS if factor in given})
    if not averages_gradients(strategy, given):
        return False
    devices = (row.get("parallelism.pipeline") or 1) * (row.get("parallelism.tensor") or 1)
    replicas = row["cluster.workers"] // devices
    if not strategy.equal_steps and replicas > 1:  # one alone is in step with itself
        return False
    whole = replicas * row["workload.batch_size"]  # time may be up within a round
    return bool(abs(row["samples"] - row["updates"] * whole) < whole)
