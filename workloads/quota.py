"""How many mini-batches a run has, and who may take them."""

from dataclasses import dataclass
from math import ceil

from scenarios import Scenario


@dataclass(frozen=True)
class Quota:
    """Mini-batches of each worker, and of all of them together; None is no bound."""

    each: int | None
    together: int | None


def quota(scenario: Scenario, samples: int | None, equal_steps: bool) -> Quota:
    """The mini-batches that `stop` allows; with `equal_steps` an epoch is dealt out evenly, rounded up."""
    each, together = scenario.stop.steps, None
    if scenario.stop.epochs is not None and samples is not None:
        together = ceil(scenario.stop.epochs * samples / scenario.workload.batch_size)
        if equal_steps:
            share = ceil(together / scenario.cluster.workers)
            each, together = share if each is None else min(each, share), None
    return Quota(each, together)
