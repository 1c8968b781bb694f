"""How many mini-batches a run has, and who may take them."""

from dataclasses import dataclass
from math import ceil

from lockstep.scenarios import Scenario


@dataclass(frozen=True)
class Quota:
    """Mini-batches of each worker, and of all of them together; None is no bound."""

    each: int | None
    together: int | None

    def in_all(self, workers: int) -> int | None:
        """What so many workers may make together."""
        bounds = [self.together, None if self.each is None else self.each * workers]
        return min((bound for bound in bounds if bound is not None), default=None)


def quota(scenario: Scenario, samples: int | None, equal_steps: bool, pooled: bool = False) -> Quota:
    """The mini-batches that `stop` allows.

    With `equal_steps` an epoch is dealt out evenly, rounded up, and also where the model is split, so that
    the stages of a replica end with the same mini-batch; where they are `pooled`, the steps of all workers,
    too, are anyone's.
    """
    each, together, workers = scenario.stop.steps, None, scenario.replicas
    if scenario.stop.epochs is not None and samples is not None:
        together = ceil(scenario.stop.epochs * samples / scenario.workload.batch_size)
        if (equal_steps or scenario.split.devices > 1) and not pooled:
            share = ceil(together / workers)
            each, together = share if each is None else min(each, share), None
    found = Quota(each, together)
    return Quota(None, found.in_all(workers)) if pooled else found
