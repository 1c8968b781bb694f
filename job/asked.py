"""What a scenario asks of layers of its model, checked before anything runs: `workload.dropout`."""

from functools import partial

from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.workload import Data


def check(scenario: Scenario) -> None:
    """Raises ScenarioError (keys below ``workload``) where the model has no such layers."""
    workload = scenario.workload
    if not isinstance(workload, Data) or workload.dropout == "micro-batch":
        return
    from lockstep.workloads import counting, models
    from lockstep.workloads.dropout import random_layers

    model = counting.on_meta(partial(models.of, workload, seed=0))
    if not random_layers(model):
        problem = f"must be micro-batch, or left out: the model {workload.model} has no dropout"
        raise ScenarioError(problem, key="workload.dropout")
