"""The strategies by name: points in the product schedule × consistency × rule × codec, or whole programs.

A scenario names a point, and may take a factor from another: `{name: ssp-blocking, rule: dc-asgd}`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lockstep.strategies import consistency, local_sgd, local_steps, relays, rules, schedules
from lockstep.strategies.ad_psgd import ad_psgd
from lockstep.strategies.all_reduce import all_reduce
from lockstep.strategies.bounds import misfit, problem
from lockstep.strategies.d_psgd import d_psgd
from lockstep.strategies.gossip import gossip
from lockstep.strategies.hogwild import hogwild
from lockstep.strategies.mistakes import StrategyError, nearest
from lockstep.strategies.optimizers import WITH_SQUARES
from lockstep.strategies.owners import OneModelEach, SharedMemory
from lockstep.strategies.sgp import sgp
from lockstep.strategies.strategy import FACTORS, Strategy

_BARRIER: dict[str, Any] = {
    "consistency": consistency.barrier,
    "equal_steps": True,
    "relay": relays.gather,
    "sums_along": True,
}
_IMMEDIATE: dict[str, Any] = {
    "consistency": consistency.immediate,
    "relay": relays.combine,
    "at_any_time": True,
}
_BOUNDED: dict[str, Any] = {
    "consistency": consistency.bounded,
    "at_any_time": True,
    "holds_back": "reads",
}
_MOVES: dict[str, Any] = {"pushes": "moves"}
_COMMITS: dict[str, Any] = {"pushes": "moves", "commits": True}
_AGN = Strategy(local_steps.agn, **_MOVES, **_IMMEDIATE)

STRATEGIES: dict[str, Strategy] = {
    "synchronous": Strategy(
        schedules.in_chunks,
        consistency.barrier_in_chunks,
        equal_steps=True,
        relay=relays.gather_in_chunks,
        sums_along=True,
        summary="the mean of one gradient from every worker, at a barrier",
    ),
    "backup-workers": Strategy(
        schedules.every_batch,
        consistency.first_of_more,
        sharded=False,
        at_most={"backups": -1},
        summary="the mean of the first n − backups gradients; late ones are dropped (Chen et al. 2016)",
    ),
    "k-sync": Strategy(
        schedules.until_updated,
        consistency.first_k_workers,
        equal_steps=True,
        tied=True,
        at_most={"k": 0},
        summary="the mean of the first k workers' gradients; the others give up (Dutta et al. 2018)",
    ),
    "k-batch-sync": Strategy(
        schedules.restarting,
        consistency.first_k_batches,
        tied=True,
        summary="the mean of the first k gradients from anyone; the others give up (Dutta et al. 2018)",
    ),
    "model-averaging": Strategy(
        local_steps.averaging,
        **_MOVES,
        **_BARRIER,
        summary="local steps, then everyone goes on from the mean of all models",
    ),
    "easgd": Strategy(
        local_steps.easgd,
        tied=True,
        **_MOVES,
        **_BARRIER,
        summary="elastic averaging with a centre, all together (Zhang et al. 2015)",
    ),
    "bmuf": Strategy(
        local_steps.block_averaging,
        consistency.blocks,
        equal_steps=True,
        relay=relays.gather,
        sums_along=True,
        own_optimizer=True,
        tied=True,
        **_MOVES,
        summary="model averaging with momentum on the mean move (Chen and Huo 2016)",
    ),
    "fedavg": Strategy(
        local_steps.fedavg,
        consistency.participants,
        equal_steps=True,
        pooled=True,
        sharded=False,
        tied=True,
        **_MOVES,
        summary="local epochs of some clients, then their weighted mean (McMahan et al. 2017)",
    ),
    "fedprox": Strategy(
        local_steps.fedprox,
        consistency.partial_participants,
        equal_steps=True,
        pooled=True,
        sharded=False,
        tied=True,
        **_MOVES,
        summary="FedAvg with a pull towards the server's model, and partial work (Li et al. 2020)",
    ),
    "asynchronous": Strategy(
        schedules.every_batch,
        **_IMMEDIATE,
        summary="every gradient as it comes; nobody waits (Dean et al. 2012)",
    ),
    "downpour": Strategy(
        local_steps.downpour,
        awaits="nothing",
        **_COMMITS,
        **_IMMEDIATE,
        summary="local steps; pushes and fetches go on in the background (Dean et al. 2012)",
    ),
    "downpour-blocking": Strategy(
        local_steps.downpour_blocking,
        **_COMMITS,
        **_IMMEDIATE,
        summary="downpour whose workers wait for every answer, as dist-keras has it",
    ),
    "agn": replace(
        _AGN, summary="local steps, whose mean is pushed every window; nobody waits (Hermans et al. 2017)"
    ),
    "adag": replace(_AGN, summary="another name for agn: dist-keras calls it so"),
    "adag-distance": Strategy(
        local_steps.downpour_blocking,
        rule=rules.scaled_by_distance,
        **_COMMITS,
        **_IMMEDIATE,
        summary="downpour; a push counts less the farther the server has moved (Hermans 2017)",
    ),
    "aeasgd": Strategy(
        local_steps.aeasgd,
        **_COMMITS,
        **_IMMEDIATE,
        summary="elastic averaging, each worker by itself (Zhang et al. 2015)",
    ),
    "eamsgd": Strategy(
        local_steps.eamsgd,
        **_COMMITS,
        **_IMMEDIATE,
        summary="aeasgd with Nesterov's momentum on the workers (Zhang et al. 2015)",
    ),
    "k-async": Strategy(
        schedules.every_batch,
        consistency.every_k_workers,
        sharded=False,
        at_most={"k": 0},
        summary="the mean of k workers' gradients, who wait for each other (Dutta et al. 2018)",
    ),
    "k-batch-async": Strategy(
        schedules.every_batch,
        consistency.every_k_batches,
        at_any_time=True,
        summary="the mean of any k gradients; nobody waits (Dutta et al. 2018)",
    ),
    "soft-sync": Strategy(
        schedules.every_batch,
        consistency.soft_sync,
        at_any_time=True,
        at_most={"n": 0},
        summary="the mean of any ⌊workers ÷ n⌋ gradients; nobody waits (Zhang, Gupta et al. 2016)",
    ),
    "staleness-aware": Strategy(
        schedules.every_batch,
        rule=rules.rate_over_staleness,
        **_IMMEDIATE,
        summary="asynchronous at the rate α₀/staleness (Zhang, Gupta et al. 2016)",
    ),
    "dynsgd": Strategy(
        local_steps.downpour_blocking,
        rule=rules.scaled_by_staleness,
        **_COMMITS,
        **_IMMEDIATE,
        summary="downpour; a push counts 1/(staleness + 1) (dist-keras, after Jiang et al. 2017)",
    ),
    "dc-asgd": Strategy(
        schedules.every_batch,
        rule=rules.delay_compensated,
        **_IMMEDIATE,
        summary="asynchronous with delay compensation (Zheng et al. 2017)",
    ),
    "ssp": Strategy(
        local_steps.cached,
        awaits="clocks",
        **_COMMITS,
        **_BOUNDED,
        summary="steps from a copy that may be bound clocks old: the network is hidden (Ho et al. 2013)",
    ),
    "ssp-blocking": Strategy(
        schedules.every_batch,
        **_BOUNDED,
        summary="asynchronous, but nobody is more than bound pushes ahead of the slowest",
    ),
    "bounded-delay": Strategy(
        schedules.pipelined,
        consistency.every_clock,
        commits=True,
        at_any_time=True,
        holds_back="answers",
        summary="up to bound of the own pushes unanswered; answers at every clock (Li et al. 2014)",
    ),
    "all-reduce": Strategy(
        all_reduce,
        equal_steps=True,
        summary="the mean of all gradients, summed without a server",
    ),
    "local-sgd": Strategy(
        local_sgd.local_sgd,
        equal_steps=True,
        summary="local steps, then the mean of all models, without a server (Stich 2019)",
    ),
    "post-local-sgd": Strategy(
        local_sgd.post_local_sgd,
        equal_steps=True,
        summary="synchronous first, local SGD later (Lin et al. 2020)",
    ),
    "adacomm": Strategy(
        local_sgd.adacomm,
        equal_steps=True,
        summary="local SGD whose period falls with the loss (Wang and Joshi 2019)",
    ),
    "diloco": Strategy(
        local_sgd.diloco,
        equal_steps=True,
        defaults={"optimizer": "adamw", "weight_decay": 0.1},
        summary="many local steps, then Nesterov's momentum on the mean move (Douillard et al. 2023)",
    ),
    "d-psgd": Strategy(
        d_psgd,
        equal_steps=True,
        owners=OneModelEach,
        summary="a step, and the weighted mean of the neighbours' models (Lian et al. 2017)",
    ),
    "sgp": Strategy(
        sgp,
        equal_steps=True,
        owners=OneModelEach,
        summary="push-sum with one peer a step on a directed exponential graph (Assran et al. 2019)",
    ),
    "ad-psgd": Strategy(
        ad_psgd,
        owners=OneModelEach,
        summary="the mean with one random neighbour's model; nobody waits (Lian et al. 2018)",
    ),
    "gossip": Strategy(
        gossip,
        at_most={"peers": -1},
        owners=OneModelEach,
        summary="now and then a weighted copy of the model to random peers (Blot et al. 2016)",
    ),
    "hogwild": Strategy(
        hogwild,
        owners=SharedMemory,
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
    known = {key: p for other in STRATEGIES.values() for key, p in other.parameters.items()}
    known |= strategy.parameters
    for key, value in values.items():
        if key in FACTORS:
            continue
        if key not in known:
            hint = nearest(key, [*strategy.parameters, *(FACTORS if strategy.has_servers else ())])
            raise StrategyError(f"strategy.{key}", f"unknown parameter of {name}{hint}")
        wrong = problem(value, known[key].annotation)
        if wrong is not None:
            raise StrategyError(f"strategy.{key}", wrong)
    return strategy


def composed(name: str, values: Mapping[str, Any]) -> Strategy:
    """The named strategy with the factors that are taken from others."""
    if name not in STRATEGIES:
        raise StrategyError("strategy.name", f"unknown strategy {name!r}{nearest(name, STRATEGIES)}")
    base = STRATEGIES[name]
    found, served = base, [other for other, s in STRATEGIES.items() if s.has_servers]
    for factor, fields in FACTORS.items():
        source = values.get(factor, name)
        if factor in values and source not in served:
            problem = f"{source!r} is not a strategy with a server"
            raise StrategyError(f"strategy.{factor}", problem + nearest(str(source), served))
        if source == name or not base.has_servers:
            continue
        other = STRATEGIES[source]
        for owner, strategy in ((name, base), (source, other)):
            if strategy.tied and factor != "rule":
                problem = f"the schedule and the consistency of {owner} go with each other only"
                raise StrategyError(f"strategy.{factor}", problem)
        taken = {key: getattr(other, key) for key in fields}
        found = replace(found, **taken, at_most={**found.at_most, **other.at_most})
    if found.commits and not found.at_any_time:
        able = ", ".join(other for other, s in STRATEGIES.items() if s.at_any_time and not s.tied)
        problem = f"{values.get('schedule', name)}'s schedule needs a server that answers at any time: {able}"
        raise StrategyError("strategy.consistency", problem)
    if found.awaits == "clocks" and found.holds_back != "reads":
        able = ", ".join(other for other, s in STRATEGIES.items() if s.holds_back == "reads")
        problem = f"{values.get('schedule', name)}'s schedule needs a server that tells its clock: {able}"
        raise StrategyError("strategy.consistency", problem)
    if found.awaits == "nothing" and found.holds_back != "nothing":
        server, schedule = values.get("consistency", name), values.get("schedule", name)
        problem = f"{server}'s server holds answers back, but {schedule}'s schedule waits for none"
        raise StrategyError("strategy.consistency", problem)
    averages = values.get("optimizer_state") == "average" and "optimizer_state" in found.parameters
    squares = values.get("optimizer") in WITH_SQUARES
    if averages and squares and values.get("codec", "none") != "none" and "codec" in found.parameters:
        problem = (
            f"the mean square that {values['optimizer']} keeps may turn negative on its way: its root is nan"
        )
        valid = "leave the codec out, or keep or reset the optimizer_state"
        raise StrategyError("strategy.codec", f"{problem}; {valid}")
    if averages and found.has_servers and not found.sums_along:
        able = ", ".join(other for other, s in STRATEGIES.items() if s.sums_along and not s.tied)
        problem = f"average needs a server that averages the state along: {able}"
        raise StrategyError("strategy.optimizer_state", problem)
    if found.rule is rules.delay_compensated and found.pushes != "gradients":
        problem = "compensates gradients; the schedule pushes how far a worker has moved"
        raise StrategyError("strategy.rule", problem)
    return found


def fits(name: str, values: Mapping[str, Any], cluster: Any) -> None:
    """Check that a strategy `find` has found can run on a scenario's `cluster`; raises StrategyError."""
    strategy = find(name, values)
    parameters = strategy.parameters
    for key, more in strategy.at_most.items():
        given = (values.get(key) or 0) if key in parameters else 0  # defaults do for one worker too
        if given > cluster.workers + more:
            workers = f"{cluster.workers} worker{'s' if cluster.workers > 1 else ''}"
            limit = f"must be at most {cluster.workers + more}, with {workers}"
            raise StrategyError(f"strategy.{key}", f"{limit}, not {given}")
    for key, parameter in strategy.parameters.items():
        wrong = misfit(values.get(key, parameter.default), parameter.annotation, cluster.workers)
        if wrong is not None:
            raise StrategyError(f"strategy.{key}", wrong)
    if strategy.has_servers and not strategy.sharded and cluster.servers.count > 1:
        problem = f"{name} must have one server, not {cluster.servers.count}"
        raise StrategyError("cluster.servers.count", problem)
    if not (cluster.servers.hierarchy and strategy.has_servers):
        return
    if strategy.relay is None:
        able = ", ".join(other for other, s in STRATEGIES.items() if s.relay is not None)
        problem = f"{name} cannot have relays between workers and servers; remove it, or use one of {able}"
        raise StrategyError("cluster.servers.hierarchy", problem)
    encoded = any(values.get(key, "none") != "none" for key in ("codec", "answer_codec"))
    if strategy.rule is not None or encoded:
        problem = "relays push sums, which can neither be encoded nor corrected for each worker's staleness"
        raise StrategyError("cluster.servers.hierarchy", f"{problem}; remove it")


def own(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those parameters and factors that the strategy has; the others are of the one that it stands in for."""
    strategy = composed(name, values)
    valid = {*strategy.parameters, *(FACTORS if strategy.has_servers else ())}
    return {key: value for key, value in values.items() if key in valid}
