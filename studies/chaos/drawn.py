"""Simulated runs with faults of all kinds, drawn at random."""

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import lockstep
from lockstep.job.plan import Plan
from lockstep.job.recovery import refuses_to_go_on
from lockstep.scenarios import Scenario
from lockstep.scenarios.loading import changing
from lockstep.simulator.errors import SimulationError
from lockstep.strategies.kept import Savers
from lockstep.studies.chaos import Trial
from lockstep.studies.chaos.invariants import broken

_MOST = 4  # faults of a run


def trials(scenario: Scenario, seed: int) -> Iterator[Trial]:
    """One after the other, without end. Raises ScenarioError if the scenario cannot be simulated."""
    whole = lockstep.simulate(scenario)
    end = max(whole.span[1], 1e-3)
    number = 0
    while True:
        random = Random(f"{seed}/chaos/{number}")
        recovery = _recovery(random, whole.plan)
        goes_on = recovery["on_failure"] in ("continue", "wait")
        items = [_fault(random, whole.plan, end, goes_on) for _ in range(random.randint(1, _MOST))]
        resizes = [item for item in items if "workers" in item]  # one: who has left cannot leave again
        items = [item for item in items if item not in resizes[1:]]
        yield _trial(number, scenario, items, recovery, end)
        number += 1


def _trial(
    number: int, scenario: Scenario, items: list[dict[str, Any]], recovery: dict[str, Any], end: float
) -> Trial:
    began = time.monotonic()
    struck = (*map(words, items), f"recovery: {words(recovery)}")
    changes = {"cluster.faults": items, "recovery": recovery, "cluster.detect": f"{end / 20} s"}

    def trial(end: str, said: str = "", *wrong: str) -> Trial:
        return Trial(number, struck, end, said, wrong, time.monotonic() - began)

    try:
        result = lockstep.simulate(changing(scenario).changed(changes))
    except SimulationError as error:
        said = str(error)
        if "failed:" in said or "wait for each other" in said:  # a strategy's error, or a deadlock
            return trial("broken", said, said)
        return trial("said", said)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        return trial("broken", said, said)
    wrong = [*broken(result)]
    return trial("broken" if wrong else "ended", "", *wrong)


def _recovery(random: Random, plan: Plan) -> dict[str, Any]:
    policies = ["restart", "spare"]
    if refuses_to_go_on(plan.scenario, plan.strategy) is None:
        policies += ["continue", "wait"]
    recovery: dict[str, Any] = {"on_failure": random.choice(policies)}
    if plan.strategy.savers is not Savers.NOBODY and random.random() < 0.8:
        recovery["checkpoint"] = {"every": f"{random.choice([1, 2, 5, 20])} updates"}
    return recovery


def _fault(random: Random, plan: Plan, end: float, goes_on: bool) -> dict[str, Any]:
    """Of any kind, at an instant uniform in the run. goes_on: whether others do without who has failed."""
    cluster, servers = plan.scenario.cluster, len(plan.roles) > len(plan.workers)
    at, lasts = f"{random.uniform(0, end)} s", f"{random.expovariate(10 / end)} s"
    worker, host = random.choice(plan.workers), random.choice(plan.hosts)
    crash = {"crash": True, "at": at, "back_after": lasts}
    kinds: list[dict[str, Any]] = [
        {"worker": worker, **crash},
        {"host": host, **crash},
        {"worker": worker, **crash, "exits_after": f"{random.uniform(0, end / 10)} s"},
        {"worker": worker, "at": at, "notice": f"{end / 10} s", "back_after": lasts},
        {"worker": worker, "at": at, "hang_for": lasts},
        *cuts(random, plan, at, lasts),
        {"mtbf": f"{end * cluster.workers} s", "back_after": lasts},
    ]
    if goes_on:
        kinds.append({"worker": worker, "crash": True, "at": at})
        kinds.append({"worker": worker, "crash": True, "mtbf": f"{end} s", "back_after": lasts})
    if servers:
        server = random.randrange(cluster.servers.count)
        kinds += [{"server": server, **crash}, {"server": server, "at": at, "hang_for": lasts}]
    if plan.strategy.resizes and goes_on and plan.strategy.savers is not Savers.WORKERS:
        kinds.append({"workers": {"add": random.randint(1, 2)}, "at": at})
        if len(plan.workers) > 1:
            kinds.append({"workers": {"remove": [random.choice(plan.workers[1:])]}, "at": at})
    return random.choice(kinds)


def cuts(random: Random, plan: Plan, at: str, lasts: str) -> list[dict[str, Any]]:
    """A host's link, and if there are several hosts two groups that do not reach each other."""
    hosts, when = sorted(set(plan.hosts)), {"at": at, "down_for": lasts}
    link = {"host": random.choice(plan.hosts), "direction": random.choice(["up", "down", "both"])}
    found: list[dict[str, Any]] = [{"link": link, **when}]
    if len(hosts) > 1:
        cut = random.randrange(1, len(hosts))
        found.append({"partition": [hosts[:cut], hosts[cut:]], **when})
    return found


def words(item: dict[str, Any]) -> str:
    """An item of a scenario, for people."""
    return ", ".join(f"{key}: {value}" for key, value in item.items())
