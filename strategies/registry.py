"""The strategies by name: points in a product, or whole programs.

The product is worker loop × synchronisation model × correction × codec.

A scenario names a point, and may take a factor from another: `{name: ssp-blocking, correction: dc-asgd}`.
"""

from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from lockstep.strategies import (
    composition,
    consistency,
    corrections,
    federated,
    local_sgd,
    local_steps,
    worker_loops,
)
from lockstep.strategies.ad_psgd import ad_psgd
from lockstep.strategies.ako import ako
from lockstep.strategies.all_reduce import all_reduce
from lockstep.strategies.bounds import mismatch, problem
from lockstep.strategies.compute_groups import barrier_of_groups
from lockstep.strategies.d_psgd import d_psgd
from lockstep.strategies.fsdp import fsdp, hsdp
from lockstep.strategies.gossip import gossip
from lockstep.strategies.hogwild import hogwild
from lockstep.strategies.jobs import in_jobs
from lockstep.strategies.kept import Savers
from lockstep.strategies.mistakes import StrategyError, nearest, one_of
from lockstep.strategies.owners import OneModelEach, SharedMemory
from lockstep.strategies.p3 import barrier_of_slices, by_priority
from lockstep.strategies.pipe_sgd import pipe_sgd
from lockstep.strategies.pipedream import in_flight, pipedream, pipedream_2bw, two
from lockstep.strategies.sgp import osgp, sgp
from lockstep.strategies.shares import sharded, sharded_in_groups
from lockstep.strategies.strategy import FACTORS, Strategy
from lockstep.strategies.streaming_diloco import streaming_diloco

STRATEGIES: dict[str, Strategy] = {
    "synchronous": Strategy(
        worker_loops.in_chunks,
        consistency.barrier_in_chunks,
        repeats=True,
        summary="the mean of one gradient from every worker, at a barrier",
    ),
    "p3": Strategy(
        by_priority,
        barrier_of_slices,
        summary="synchronous; the slices that are needed first travel first (Jayarajan et al. 2019)",
    ),
    "backup-workers": Strategy(
        worker_loops.every_batch,
        consistency.first_of_more,
        summary="the mean of the first n − backups gradients; late ones are dropped (Chen et al. 2016)",
    ),
    "k-sync": Strategy(
        worker_loops.until_updated,
        consistency.first_k_workers,
        summary="the mean of the first k workers' gradients; the others give up (Dutta et al. 2018)",
    ),
    "k-batch-sync": Strategy(
        worker_loops.restarting,
        consistency.first_k_batches,
        summary="the mean of the first k gradients from anyone; the others give up (Dutta et al. 2018)",
    ),
    "model-averaging": Strategy(
        local_steps.averaging,
        consistency.barrier,
        summary="local steps, then everyone goes on from the mean of all models",
    ),
    "easgd": Strategy(
        local_steps.easgd,
        consistency.centre,
        summary="elastic averaging with a centre, all together (Zhang et al. 2015)",
    ),
    "bmuf": Strategy(
        local_steps.block_averaging,
        consistency.blocks,
        summary="model averaging with momentum on the mean delta (Chen and Huo 2016)",
    ),
    "fedavg": Strategy(
        federated.fedavg,
        federated.participants,
        summary="local epochs of some clients, then their weighted mean (McMahan et al. 2017)",
    ),
    "fedprox": Strategy(
        federated.fedprox,
        federated.partial_participants,
        summary="FedAvg with a pull towards the server's model, and partial work (Li et al. 2020)",
    ),
    "asynchronous": Strategy(
        worker_loops.every_batch,
        consistency.immediate,
        summary="every gradient as it comes; nobody waits (Dean et al. 2012)",
    ),
    "downpour": Strategy(
        local_steps.downpour,
        consistency.immediate,
        summary="local steps; pushes and fetches go on in the background (Dean et al. 2012)",
    ),
    "downpour-blocking": Strategy(
        local_steps.downpour_blocking,
        consistency.immediate,
        summary="downpour whose workers wait for every answer, as dist-keras has it",
    ),
    "agn": Strategy(
        local_steps.agn,
        consistency.immediate,
        summary="local steps, whose mean is pushed every window; nobody waits (Hermans et al. 2017)",
    ),
    "adag": Strategy(
        local_steps.agn,
        consistency.immediate,
        summary="another name for agn: dist-keras calls it so",
    ),
    "adag-distance": Strategy(
        local_steps.downpour_blocking,
        consistency.immediate,
        corrections.scaled_by_distance,
        summary="downpour; a push counts less the farther the server has moved (Hermans 2017)",
    ),
    "aeasgd": Strategy(
        local_steps.aeasgd,
        consistency.immediate,
        summary="elastic averaging, each worker by itself (Zhang et al. 2015)",
    ),
    "eamsgd": Strategy(
        local_steps.eamsgd,
        consistency.immediate,
        summary="aeasgd with Nesterov's momentum on the workers (Zhang et al. 2015)",
    ),
    "k-async": Strategy(
        worker_loops.every_batch,
        consistency.every_k_workers,
        summary="the mean of k workers' gradients, who wait for each other (Dutta et al. 2018)",
    ),
    "k-batch-async": Strategy(
        worker_loops.every_batch,
        consistency.every_k_batches,
        summary="the mean of any k gradients; nobody waits (Dutta et al. 2018)",
    ),
    "compute-groups": Strategy(
        worker_loops.every_batch,
        barrier_of_groups,
        summary="synchronous inside groups of workers, asynchronous between these (Hadjis et al. 2016)",
    ),
    "soft-sync": Strategy(
        worker_loops.every_batch,
        consistency.soft_sync,
        summary="the mean of any ⌊workers ÷ n⌋ gradients; nobody waits (Zhang, Gupta et al. 2016)",
    ),
    "staleness-aware": Strategy(
        worker_loops.every_batch,
        consistency.immediate,
        corrections.rate_over_staleness,
        summary="asynchronous at the rate α₀/staleness (Zhang, Gupta et al. 2016)",
    ),
    "dynsgd": Strategy(
        local_steps.downpour_blocking,
        consistency.immediate,
        corrections.scaled_by_staleness,
        summary="downpour; a push counts 1/(staleness + 1) (dist-keras, after Jiang et al. 2017)",
    ),
    "dc-asgd": Strategy(
        worker_loops.every_batch,
        consistency.immediate,
        corrections.delay_compensated,
        summary="asynchronous with delay compensation (Zheng et al. 2017)",
    ),
    "ssp": Strategy(
        local_steps.cached,
        consistency.bounded,
        summary="steps from a copy that may be bound clocks old: the network is hidden (Ho et al. 2013)",
    ),
    "ssp-blocking": Strategy(
        worker_loops.every_batch,
        consistency.bounded,
        summary="asynchronous, but nobody is more than bound pushes ahead of the slowest",
    ),
    "bounded-delay": Strategy(
        worker_loops.pipelined,
        consistency.every_clock,
        summary="up to bound of the own pushes unanswered; answers at every clock (Li et al. 2014)",
    ),
    "all-reduce": Strategy(
        all_reduce,
        equal_steps=True,
        in_step=True,
        alike=True,
        repeats=True,
        savers=Savers.OWNERS,
        goes_on=True,
        summary="the mean of all gradients, summed without a server",
    ),
    "all-reduce-jobs": Strategy(
        in_jobs,
        equal_steps=True,
        savers=Savers.OWNERS,
        summary="all-reduce as jobs, whose tasks a driver starts in turn (BigDL: Dai et al. 2019)",
    ),
    "pipe-sgd": Strategy(
        pipe_sgd,
        equal_steps=True,
        keeps=1,  # a gradient that is being summed
        savers=Savers.OWNERS,
        goes_on=True,
        summary="all-reduce of the last gradients while the next are computed (Li et al. 2018)",
    ),
    "local-sgd": Strategy(
        local_sgd.local_sgd,
        equal_steps=True,
        alike=True,
        keeps=1,  # the sum of steps
        savers=Savers.WORKERS,
        goes_on=True,
        summary="local steps, then the mean of all models, without a server (Stich 2019)",
    ),
    "post-local-sgd": Strategy(
        local_sgd.post_local_sgd,
        equal_steps=True,
        alike=True,
        keeps=1,  # the sum of steps
        savers=Savers.WORKERS,
        goes_on=True,
        summary="synchronous first, local SGD later (Lin et al. 2020)",
    ),
    "adacomm": Strategy(
        local_sgd.adacomm,
        equal_steps=True,
        alike=True,
        keeps=1,  # the sum of steps
        savers=Savers.WORKERS,
        goes_on=True,
        summary="local SGD whose period falls with the loss (Wang and Joshi 2019)",
    ),
    "diloco": Strategy(
        local_sgd.diloco,
        equal_steps=True,
        alike=True,
        defaults={"optimizer": "adamw", "weight_decay": 0.1},
        keeps=2,  # the sum of steps, and the outer momentum
        savers=Savers.WORKERS,
        goes_on=True,
        summary="many local steps, then Nesterov's momentum on the mean delta (Douillard et al. 2023)",
    ),
    "fsdp": Strategy(
        fsdp,
        equal_steps=True,
        alike=True,
        in_step=True,
        shares=sharded,
        savers=Savers.WORKERS,
        summary="all-reduce whose workers share out state, gradients, parameters (Zhao et al. 2023; ZeRO)",
    ),
    "hsdp": Strategy(
        hsdp,
        equal_steps=True,
        alike=True,
        in_step=True,
        shares=sharded_in_groups,
        savers=Savers.WORKERS,
        summary="fsdp inside groups of workers, and a sum between these (Zhao et al. 2023)",
    ),
    "streaming-diloco": Strategy(
        streaming_diloco,
        equal_steps=True,
        defaults={"optimizer": "adamw", "weight_decay": 0.1},
        keeps=3,  # the common model, the sum of steps, and the outer momentum
        savers=Savers.WORKERS,
        goes_on=True,
        summary="diloco a fragment at a time, summed meanwhile, perhaps in 4 bits (Douillard et al. 2025)",
    ),
    "d-psgd": Strategy(
        d_psgd,
        equal_steps=True,
        owners=OneModelEach,
        keeps=2,  # neighbours' models: two on a ring
        repeats=True,
        savers=Savers.OWNERS,
        goes_on=True,
        summary="a step, and the weighted mean of the neighbours' models (Lian et al. 2017)",
    ),
    "sgp": Strategy(
        sgp,
        equal_steps=True,
        owners=OneModelEach,
        keeps=2,  # the model that is averaged, and the half that is sent
        savers=Savers.OWNERS,
        goes_on=True,
        summary="push-sum with one peer a step on a directed exponential graph (Assran et al. 2019)",
    ),
    "osgp": Strategy(
        osgp,
        equal_steps=True,
        owners=OneModelEach,
        keeps=3,  # as sgp, and a half that has come
        savers=Savers.OWNERS,
        goes_on=True,
        summary="sgp whose messages travel for up to overlap steps meanwhile (Assran et al. 2019)",
    ),
    "ad-psgd": Strategy(
        ad_psgd,
        owners=OneModelEach,
        keeps=1,  # a neighbour's model
        savers=Savers.OWNERS,
        goes_on=True,
        summary="the mean with one random neighbour's model; nobody waits (Lian et al. 2018)",
    ),
    "gossip": Strategy(
        gossip,
        owners=OneModelEach,
        keeps=1,  # another's model
        savers=Savers.OWNERS,
        goes_on=True,
        summary="now and then a weighted copy of the model to random peers (Blot et al. 2016)",
    ),
    "ako": Strategy(
        ako,
        owners=OneModelEach,
        keeps=1,  # another's part; and the last steps, as many as partitions
        savers=Savers.OWNERS,
        goes_on=True,
        summary="own steps at once, and a part of the last ones to each other worker (Ako, 2016)",
    ),
    "pipedream": Strategy(
        pipedream,
        equal_steps=True,
        alike=True,
        micro_batches=1,
        own_passes=True,
        versions=in_flight,
        savers=Savers.OWNERS,
        summary="a pipeline without a flush: each mini-batch updates each stage (Narayanan et al. 2019)",
    ),
    "pipedream-2bw": Strategy(
        pipedream_2bw,
        equal_steps=True,
        alike=True,
        own_passes=True,
        versions=two,
        savers=Savers.OWNERS,
        summary="a pipeline without a flush, two versions of the parameters (Narayanan et al. 2021)",
    ),
    "hogwild": Strategy(
        hogwild,
        owners=SharedMemory,
        keeps=1,  # a step
        summary="workers add to the same memory without a lock (Niu et al. 2011)",
    ),
}


def find(name: str, values: Mapping[str, Any]) -> Strategy:
    """The strategy of that name and those factors, once its parameters' values are known to be valid.

    A parameter that only other strategies have is allowed, so that a scenario can be run with another
    strategy by changing the name alone: see `unused`. Raises StrategyError with the scenario's key and what
    would be valid.
    """
    strategy = composed(name, values)
    for key, value in values.items():
        if key in FACTORS:
            continue
        parameter = strategy.parameters.get(key) or _of_another(key)
        if parameter is None:
            unknown = f"unknown parameter of {name}{nearest(key, strategy.keys)}"
            raise StrategyError(f"strategy.{key}", unknown)
        wrong = problem(value, parameter.annotation)
        if wrong is not None:
            raise StrategyError(f"strategy.{key}", wrong)
    return strategy


def _of_another(key: str) -> Parameter | None:
    """The parameter of that name, of the last strategy that has it."""
    return next((s.parameters[key] for s in reversed(STRATEGIES.values()) if key in s.parameters), None)


def composed(name: str, values: Mapping[str, Any]) -> Strategy:
    """The named strategy with the factors that are taken from others."""
    if name not in STRATEGIES:
        raise StrategyError("strategy.name", f"unknown strategy {name[:60]!r}{nearest(name, STRATEGIES)}")
    return composition.composed(STRATEGIES, name, values)


def fits(strategy: Strategy, name: str, values: Mapping[str, Any], cluster: Any) -> None:
    """Check that what `find` has found can run on a scenario's `cluster`; raises StrategyError."""
    parameters = strategy.parameters
    for key, more in strategy.at_most.items():
        given = (values.get(key) or 0) if key in parameters else 0  # defaults do for one worker too
        if given > cluster.workers + more:
            workers = f"{cluster.workers} worker{'s' if cluster.workers > 1 else ''}"
            limit = f"must be at most {cluster.workers + more}, with {workers}"
            raise StrategyError(f"strategy.{key}", f"{limit}, not {given}")
    for key, parameter in strategy.parameters.items():
        wrong = mismatch(values.get(key, parameter.default), parameter.annotation, cluster.workers)
        if wrong is not None:
            raise StrategyError(f"strategy.{key}", wrong)
    if strategy.has_servers and not strategy.sharded and cluster.servers.count > 1:
        problem = f"{name} must have one server, not {cluster.servers.count}"
        raise StrategyError("cluster.servers.count", problem)
    _fits_copies(name, values, strategy, cluster)
    if not (cluster.servers.hierarchy and strategy.has_servers):
        return
    if strategy.relay is None:
        able = ", ".join(other for other, s in STRATEGIES.items() if s.relay is not None)
        problem = f"{name} cannot have relays between workers and servers; remove it, or use one of {able}"
        raise StrategyError("cluster.servers.hierarchy", problem)
    if strategy.correction is not None or strategy.encodes(values):
        problem = "relays push sums, which can neither be encoded nor corrected for each worker's staleness"
        raise StrategyError("cluster.servers.hierarchy", f"{problem}; remove it")


def _fits_copies(name: str, values: Mapping[str, Any], strategy: Strategy, cluster: Any) -> None:
    copies, key = cluster.servers.copies, "cluster.servers.copies"
    if copies == 1 or strategy.consistency is None:
        return
    if not strategy.consistency.copies:
        able = ", ".join(other for other, s in STRATEGIES.items() if s.consistency and s.consistency.copies)
        problem = f"must be 1: {name}'s servers keep one copy of the parameters; or use {able}"
        raise StrategyError(key, problem)
    groups = values.get("groups", strategy.parameters["groups"].default)
    if groups % copies:
        valid = one_of(k for k in range(1, groups + 1) if groups % k == 0)
        raise StrategyError(key, f"must divide the {groups} groups of workers: {valid}; not {copies}")


def own(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those parameters and factors that the strategy has; the others are of the one that it stands in for."""
    valid = composed(name, values).keys
    return {key: value for key, value in values.items() if key in valid}
