"""What a scenario asks of its model, its rows and its gradients, checked before anything runs."""

from typing import TYPE_CHECKING

from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.compute import Compute
from lockstep.scenarios.workload import Data, Problem, Sizes, Trained, Transformer, UserTask, Workload
from lockstep.strategies import STRATEGIES, Strategy
from lockstep.strategies.consistency import most_of
from lockstep.strategies.factors import Offer, WorkerLoop
from lockstep.strategies.rows import LARGEST

if TYPE_CHECKING:
    from torch import nn


def check(scenario: Scenario, strategy: Strategy) -> None:
    """Raises ScenarioError where the model has no such layers, or the job cannot do what is asked of them."""
    workload = scenario.workload
    _check_target(scenario)
    _check_some(scenario, strategy)
    if by_row(scenario, strategy):
        _check_rows(scenario, strategy)
    if as_products(scenario, strategy) and not isinstance(workload, Data):
        problem = "outer needs workload.model: a classifier of images, whose fully connected layers are known"
        raise ScenarioError(problem, key="strategy.codec")
    if as_products(scenario, strategy):
        _check_each(scenario, strategy, "outer")
    if not isinstance(workload, Data | UserTask):
        return
    if isinstance(workload, UserTask) and workload.loaders:
        from lockstep.workloads import tasks

        if tasks.look(workload).in_memory:
            problem = "must be 0: the task's `train` are tensors, which lie on the device as a whole; nothing"
            raise ScenarioError(f"{problem} is read", key="workload.loaders")
    if workload.masks_by_sample:
        from lockstep.workloads.dropout import random_layers

        if workload.compiles:
            problem = "must be micro-batch with compile: true: masks of samples are drawn by Python"
            raise ScenarioError(problem, key="workload.dropout")
        if not random_layers(_model(workload)):
            problem = f"must be micro-batch, or left out: the model {workload.called[0]} has no dropout"
            raise ScenarioError(problem, key="workload.dropout")
    if workload.synchronised:
        from lockstep.workloads.tensor.norms import norms

        if not norms(_model(workload)):
            problem = f"must be local, or left out: the model {workload.called[0]} has no batch normalisation"
            raise ScenarioError(problem, key="workload.batch_norm")
        _check_in_step(scenario, strategy)


def _check_some(scenario: Scenario, strategy: Strategy) -> None:
    """Refuse servers that wait for some replicas: each stage's would wait for others of them, for ever."""
    replicas, given = scenario.replicas, scenario.strategy.parameters
    if scenario.split.devices == 1 or strategy.sharded or strategy.pooled or replicas == 1:
        return
    key = "k" if "k" in strategy.parameters else "backups"
    wanted = given.get("k") or most_of(replicas) if key == "k" else replicas - given.get("backups", 1)
    if 1 < wanted < replicas:
        able = (1, replicas) if key == "k" else (replicas - 1, 0)
        problem = f"must be {able[0]} or {able[1]} with {replicas} replicas of a model that is split"
        why = "servers of its parts would wait for other workers each, for ever"
        raise ScenarioError(f"{problem}: {why}", key=f"strategy.{key}")


def as_products(scenario: Scenario, strategy: Strategy) -> bool:
    """Whether gradients of fully connected layers are pushed as outer products."""
    return strategy.has_servers and scenario.strategy.parameters.get("codec") == "outer"


def by_row(scenario: Scenario, strategy: Strategy) -> bool:
    """Whether only those rows of the parameters are pushed and pulled that a mini-batch touches."""
    return strategy.has_servers and scenario.strategy.parameters.get("codec") == "rows"


def _check_rows(scenario: Scenario, strategy: Strategy) -> None:
    workload = scenario.workload
    if not isinstance(workload, Problem) or workload.problem != "embedding" or not workload.learns:
        problem = "rows needs workload.problem: embedding, which learns: others do not say what they touch"
        raise ScenarioError(problem, key="strategy.codec")
    if (rows := workload.dimension // workload.width) > LARGEST:
        raise ScenarioError(
            f"rows has numbers for {LARGEST:,} rows at most, not {rows:,}", key="strategy.codec"
        )
    _check_each(scenario, strategy, "rows")


def _check_each(scenario: Scenario, strategy: Strategy, codec: str) -> None:
    loop = strategy.worker_loop
    each = isinstance(loop, WorkerLoop) and loop.needs == {Offer.ANSWERS} and loop.pushes == "gradients"
    if not each:
        problem = f"{codec} needs a worker loop that is answered after every gradient, such as asynchronous's"
        raise ScenarioError(problem, key="strategy.codec")
    if scenario.split.devices > 1:
        raise ScenarioError(f"{codec} needs a model that is not split", key="strategy.codec")


def _check_target(scenario: Scenario) -> None:
    goal, workload = scenario.stop.goal, scenario.workload
    if goal is None or goal.metric == "loss":
        return
    known, named = {"loss", "accuracy"}, "the workload"
    if isinstance(workload, UserTask):
        from lockstep.workloads import tasks

        known, named = {"loss", *tasks.look(workload).metrics}, workload.task
    elif isinstance(workload, Problem) and workload.problem == "quadratic":
        known = {"loss"}
    if goal.metric not in known:
        key = "target_accuracy" if scenario.stop.target is None else "target.metric"
        problem = f"{named} has no metric {goal.metric}; valid: {', '.join(sorted(known))}"
        raise ScenarioError(problem, key=f"stop.{key}")


def check_clipping(scenario: Scenario, strategy: Strategy) -> None:
    """Raises ScenarioError where nobody has the norm of a whole gradient."""
    values, split = scenario.strategy.parameters, scenario.split
    if "max_grad_norm" not in strategy.parameters or values.get("max_grad_norm") is None:
        return
    why = strategy.in_parts(values, scenario.cluster.servers.count)
    if split.devices > 1 and why is None:
        why = f"each of the {split.devices} devices of a replica has a part of it"
    if why is not None:
        said = "needs the norm of the whole gradient"
        raise ScenarioError(f"{said}, but {why}; leave it out", key="strategy.max_grad_norm")


def check_passes(scenario: Scenario, in_units: bool) -> None:
    """Raises ScenarioError for a gradient that cannot be computed pass by pass, or layer by layer."""
    workload, split = scenario.workload, scenario.split
    in_parts = split.devices * split.chunks > 1 or split.order == "zero-bubble" or in_units
    if workload.computed_in == "fp16" and (in_parts or workload.synchronised):
        # where one part overflows, the others would have to be made again
        problem = "must be float32 or bf16 where a pass back is made in parts (pipeline, tensor, chunks,"
        why = f"{problem} zero-bubble, units, synchronised), not fp16"
        raise ScenarioError(why, key="workload.precision")
    if workload.readers and split.devices > 1:
        problem = "must be 0 where several devices read a mini-batch (pipeline, tensor)"
        raise ScenarioError(f"{problem}, not {workload.readers}", key="workload.loaders")
    if workload.compiles:
        problem = "must be false where a gradient is computed in passes (parallelism, units, synchronised)"
        raise ScenarioError(problem, key="workload.compile")


def unused(scenario: Scenario) -> list[str]:
    """Warnings about masks that nobody will draw, and times and sizes that nobody has given or will need."""
    workload, compute, split, found = scenario.workload, scenario.cluster.compute, scenario.split, []
    if workload.masks_by_sample and not workload.learns:
        found.append("workload.dropout means nothing where nothing is learned: ignored")
    if isinstance(compute, Compute) and compute.loading is None and workload.readers:
        found.append("cluster.compute.loading is not given: loaders take no time")
    if isinstance(compute, Compute) and compute.loading is not None and not workload.readers:
        found.append("cluster.compute.loading means nothing without workload.loaders: ignored")
    if split.pipeline * split.parts > 1 and isinstance(workload, Sizes) and workload.activation is None:
        found.append("workload.activation is not given: the devices of a replica send each other nothing")
    if split.convolutions != "all-reduce" and (split.parts == 1 or not _convolves(workload)):
        found.append("parallelism.convolutions means nothing where no convolutions are cut: ignored")
    return found


def _check_in_step(scenario: Scenario, strategy: Strategy) -> None:
    if scenario.split.tensor > 1:
        said = f"must be 1 with workload.batch_norm: synchronised, not {scenario.split.tensor}"
        raise ScenarioError(said, key="parallelism.tensor")
    if not strategy.in_step:
        name = scenario.strategy.name
        able = ", ".join(other for other, known in STRATEGIES.items() if known.in_step)
        which = f"{name}, with these factors" if STRATEGIES[name].in_step else name
        said = (
            "workload.batch_norm: synchronised needs workers that compute every gradient together, from the"
        )
        raise ScenarioError(
            f"{said} same parameters; must be one of {able}, not {which}", key="strategy.name"
        )


def _convolves(workload: Workload) -> bool:
    """Whether there is one; sizes do not say, and are refused elsewhere."""
    if not isinstance(workload, Data | UserTask):
        return not isinstance(workload, Transformer)
    from torch import nn

    return any(isinstance(module, nn.Conv2d) for module in _model(workload).modules())


def _model(workload: Trained) -> "nn.Module":
    from lockstep.workloads import tasks

    return tasks.look(workload).model
