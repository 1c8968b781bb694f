"""Failures in virtual time, of each strategy: all kinds of them; and that a job goes on where it was."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.strategies import STRATEGIES
from lockstep.strategies.kept import Savers
from lockstep.studies.chaos.invariants import broken
from tests.support.failing import simulated as run
from tests.support.nightly import drawn

CRASH = {"worker": 2, "at": "3 s", "crash": True, "back_after": "2 s"}
BACK = {"crash": True, "back_after": "300 ms"}
KINDS: dict[str, dict[str, Any]] = {
    "crash": {"worker": 2, **BACK},
    "slow exit": {"worker": 2, "exits_after": "50 ms", **BACK},
    "server": {"server": 0, **BACK},
    "host": {"host": 1, **BACK},
    "rack": {"rack": 0, **BACK},
    "hang": {"worker": 1, "hang_for": "400 ms"},
    "notice": {"worker": 1, "notice": "200 ms", "back_after": "300 ms"},
    "link": {"link": {"host": 1}, "down_for": "400 ms"},
    "partition": {"partition": [[0, 1], [2, 3]], "down_for": "400 ms"},
    "never back": {"worker": 3, "crash": True},
}


def phases(result: lockstep.Result) -> list[str]:
    """In the midst of a gradient of worker 2, and of messages from and to it, or another gradient."""
    begun = result.records.query("start > 0.5 and end > start")
    gradients = begun.query("event == 'gradient' and node == 2")
    sent, received = (begun.query(f"event == 'message' and {end} == 2") for end in ("node", "peer"))
    found = [gradients, *(each if len(each) else gradients[1:] for each in (sent, received))]
    rows = [each.iloc[len(each) // 2] for each in found]
    return [f"{(row['start'] + row['end']) / 2} s" for row in rows]


IN_PASSES = [name for name, known in STRATEGIES.items() if known.elastic and name != "p3"]
IN_PARTS = {
    "synchronous": {"chunks": 3},
    "p3": {"units": 3, "slice_size": 100},
    "streaming-diloco": {"units": 2, "overlap": 2},
}


@pytest.mark.parametrize(
    ("strategy", "more"),
    drawn(
        [
            *((name, {}) for name in STRATEGIES),
            *((name, {"parallelism": {"micro_batches": 2}}) for name in IN_PASSES),
            *((name, {"strategy": settings}) for name, settings in IN_PARTS.items()),
        ],
        one_in=16,
        family=lambda case: tuple(case[1]),
    ),
)
def test_strategies_survive_all_kinds_of_faults(strategy: str, more: dict[str, Any]) -> None:
    """At three phases of a step; every gradient is applied, dropped or lost, and never two of these."""
    known = STRATEGIES[strategy]
    every = 3 if known.savers is not Savers.NOBODY else None
    cluster = {"detect": "200 ms", "network": {"bandwidth": "2 Mbit/s", "latency": "2 ms"}}
    settings = {"name": strategy, **FEW.get(strategy, {}), **more.get("strategy", {})}
    quickly = {"stop": {"steps": 14}, "every": every, **more, "strategy": settings}
    instants = phases(run(cluster=dict(cluster), **quickly))
    for number, (kind, phase) in enumerate(product(KINDS, instants)):
        if (kind == "server" and not known.has_servers) or (kind == "never back" and not known.elastic):
            continue
        # of streaming-diloco's units nobody goes on
        elastic = known.elastic and (strategy == "p3" or not settings.get("units"))
        if kind == "never back" and not elastic:
            continue
        policies = ("continue", "wait", "restart", "spare") if elastic else ("restart", "spare")
        on = "continue" if kind == "never back" else policies[number % len(policies)]
        assert not [*broken(run(KINDS[kind] | {"at": phase}, on=on, cluster=dict(cluster), **quickly))]


@pytest.mark.parametrize(
    "settings",
    drawn(
        [
            {"parallelism": {"pipeline": 2}},
            {"parallelism": {"pipeline": 2, "order": "interleaved", "chunks": 1}},
            {"parallelism": {"pipeline": 2, "order": "zero-bubble"}, "strategy": "all-reduce"},
            {"parallelism": {"tensor": 2}, "strategy": {"name": "all-reduce", "optimizer": "adam"}},
            {"parallelism": {"pipeline": 2}, "strategy": {"name": "pipedream-2bw", "optimizer": "adam"}},
            {"parallelism": {"pipeline": 2}, "strategy": "local-sgd"},
            {"strategy": "p3"},
        ],
        one_in=3,
    ),
)
def test_split_models_go_on_where_they_were(settings: dict[str, Any]) -> None:
    workload = {"dataset": "digits", "model": "mlp", "batch_size": 8}
    settings = {"strategy": "synchronous", "workload": workload, "stop": {"steps": 30}, "every": 2} | settings
    whole = run(**settings)
    at = whole.metrics["duration_s"] / 2.2
    failed = run(CRASH | {"at": f"{at} s"}, **settings)
    assert failed.metrics["failures"] == 1
    assert np.array_equal(failed.parameters, whole.parameters)


@pytest.mark.parametrize(
    "strategy",
    drawn([name for name, found in STRATEGIES.items() if found.savers is not Savers.NOBODY], one_in=4),
)
def test_strategies_restart(strategy: str) -> None:
    stop = {"steps": 50} if strategy.startswith("fed") else {"steps": 100}
    result = run(CRASH, strategy={"name": strategy, **FEW.get(strategy, {})}, every=3, stop=stop)
    assert not [*broken(result)]
    assert result.metrics["updates"] > 0
    recovered = result.records[result.records["event"] == "recovery"]
    assert len(recovered) == 1
    assert result.metrics["checkpoints"] > 0


FEW = {
    name: {"averaging_period": 4}
    for name in ("local-sgd", "post-local-sgd", "adacomm", "diloco", "streaming-diloco")
}
"""Local steps between averagings."""
# what another order of messages changes, or what was lost on its way
INEXACT = {"osgp", "ako", "ad-psgd", "gossip", "pipedream", "hogwild"}


@pytest.mark.parametrize(
    "strategy",
    drawn(
        [
            *(
                name
                for name, s in STRATEGIES.items()
                if s.savers is not Savers.NOBODY and name not in INEXACT and not s.has_servers
            ),
            *("post-local-sgd-later", "streaming-diloco-units", "fsdp-2"),
        ],
        one_in=4,
    ),
)
def test_who_has_no_servers_goes_on_where_it_was(strategy: str) -> None:
    """A run that fails ends with the bits of one that does not: all that matters is in the checkpoint."""
    more = {
        "post-local-sgd-later": {"name": "post-local-sgd", "switch_step": 7, "buckets": 2, **FEW["diloco"]},
        "streaming-diloco-units": {"name": "streaming-diloco", "units": 2, "overlap": 2, **FEW["diloco"]},
        "fsdp-2": {"name": "fsdp", "zero": 2, "buckets": 2},
    }
    chosen = more.get(strategy, {"name": strategy, **FEW.get(strategy, {})})
    workload = {"dataset": "digits", "model": "mlp", "batch_size": 8}
    settings: dict[str, Any] = {"strategy": chosen | {"optimizer": "adam"}, "workload": workload}
    settings |= {"every": 2, "stop": {"steps": 30}}
    whole = run(**settings)
    failed = run(CRASH | {"at": "2.21 s"}, **settings)
    assert failed.metrics["failures"] == 1
    assert np.array_equal(failed.parameters, whole.parameters)
