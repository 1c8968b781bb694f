"""What must hold in every run, whatever the strategy and the cluster: hypothesis puts small ones together."""

import json
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lockstep
from lockstep import Result, Scenario, ScenarioError
from lockstep.job.plan import Plan
from lockstep.simulator.engine import Simulation
from lockstep.strategies import STRATEGIES, Strategy, StrategyError, find, graphs
from lockstep.strategies.bounds import Graph, Milestones, optional
from lockstep.strategies.owners import OneModelEach
from lockstep.strategies.strategy import FACTORS
from tests.support.nightly import examples
from tests.support.scenarios import scenario

DISTRIBUTIONS = [
    {"distribution": "constant", "value": "10 ms"},
    {"distribution": "exponential", "mean": "10 ms"},
    {"distribution": "pareto", "mean": "10 ms", "shape": 1.5},
]
BATCH = 32
OF_OTHER_WORKLOADS = ("rows", "outer")  # codecs of embeddings and of fully connected layers


def some(**keys: Any) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping with some of the keys; each has a list of values."""
    values = {key: st.sampled_from(choices) for key, choices in keys.items()}
    return st.fixed_dictionaries({}, optional=values)


@st.composite
def strategies(draw: st.DrawFn, workers: int, **others: Any) -> dict[str, Any]:
    """A strategy that so many workers can run, with other changes that `conftest.scenario` makes."""
    name = draw(st.sampled_from(list(STRATEGIES)))
    factors = draw(some(**{factor: list(STRATEGIES) for factor in FACTORS}))
    try:
        strategy = find(name, factors)
    except StrategyError:  # what does not go together is refused
        strategy, factors = STRATEGIES[name], {}
    most = {"k": workers, "n": workers, "backups": workers - 1, "peers": workers - 1, "graph": workers}
    found: dict[str, Any] = {"name": name, **factors}
    parameters = strategy.parameters
    for key in parameters:
        if key == "max_grad_norm":  # refused where nobody has a whole gradient, as with several servers
            continue
        drawn = draw(_values(key, optional(parameters[key].annotation)[0], most.get(key, 4)))
        if drawn is not None:
            found[key] = drawn
    while (
        key := _refused(found, cluster__workers=workers, **others)
    ) in found:  # such as optimizer_state: average without a barrier
        found.pop(key)
    assume(not key)
    return found


def _refused(strategy: dict[str, Any], **others: Any) -> str:
    """The key of a strategy's section for which a scenario refuses it; "" if it does not."""
    try:
        Plan.of(scenario(strategy=strategy, **others))
    except ScenarioError as error:
        return error.key.removeprefix("strategy.")
    return ""


def _values(key: str, annotation: Any, most: int) -> st.SearchStrategy[Any]:
    """Some of the values that a parameter may take."""
    if annotation is bool:
        return st.booleans()
    if get_origin(annotation) is Literal:
        choices = [each for each in get_args(annotation) if each not in OF_OTHER_WORKLOADS]
        return st.just(choices[0]) | st.sampled_from(choices)
    if annotation == Graph:
        path = [[rank - 1, rank] for rank in range(1, most)]
        return st.sampled_from([*graphs.NAMES, path])
    kind, bound = get_args(annotation)[:2]
    if annotation == Milestones:
        return st.none()
    if kind is float:
        return st.none() if bound.le is None else st.sampled_from([0.3, 1.0])
    return st.integers(int(bound.ge), most) if most >= bound.ge else st.none()


def chosen(strategy: dict[str, Any]) -> Strategy:
    """The strategy that a scenario's section means."""
    return find(strategy["name"], {key: value for key, value in strategy.items() if key != "name"})


@st.composite
def servers(draw: st.DrawFn, workers: int, strategy: dict[str, Any]) -> dict[str, Any]:
    kind = chosen(strategy)
    count = draw(st.integers(1, 3)) if kind.sharded else 1
    found = {"count": count, "colocated": draw(st.booleans())}
    if draw(st.booleans()):
        found["shares"] = draw(st.lists(st.sampled_from([1, 2, 100]), min_size=count, max_size=count))
    plain = all(strategy.get(key, "none") == "none" for key in ("codec", "answer_codec"))
    as_it_is = kind.correction is None and plain
    if kind.relay is not None and as_it_is and draw(st.booleans()):
        fan_out = draw(st.sampled_from([None, 1, 2]))
        found["hierarchy"] = {"groups": draw(st.integers(1, workers)), "fan_out": fan_out}
    return found


@st.composite
def networks(draw: st.DrawFn, hosts: int) -> dict[str, Any]:
    topologies: list[dict[str, Any]] = [
        {"kind": "star"},
        {"kind": "racks", "hosts_per_rack": 2, "oversubscription": 4, "latency": "5 ms"},
        {"kind": "fat-tree", "hosts_per_leaf": 2, "spines": 2, "link": "700 kB/s"},
        {"kind": "sites", "hosts": [1] * hosts, "latency": "30 ms", "bandwidth": "200 kB/s"},
    ]
    changes = [{"at": "13 ms", "factor": 0.3}, {"at": "50 ms", "factor": 2.0}]
    others = [{"from": 0, "to": hosts - 1, "bandwidth": "300 kB/s", "on": "20 ms", "off": "30 ms"}]
    return {"bandwidth": "1 MB/s"} | draw(
        some(
            latency=["1 ms"], message_overhead=["3 ms"], receive_overhead=["3 ms"], goodput=[0.9],
            duplex=["half"], burst=[{"size": "2 kB", "line_rate": "100 MB/s"}],
            server_bandwidth=["5 MB/s"], cards=[[{"hosts": [0], "bandwidth": "50 kB/s"}]],
            intra_host=[{"bandwidth": "5 MB/s", "latency": "10 us"}, {"latency": "1 ms"}],
            topology=topologies, varying=[[{"links": "*", "schedule": changes, "repeat": "70 ms"}]],
            background=[others] if hosts > 1 else [[]],
        )
    )  # fmt: skip


@st.composite
def clusters(draw: st.DrawFn, most: int = 7) -> dict[str, Any]:
    """The changes that `conftest.scenario` makes, for at most so many workers."""
    workers, per_host = draw(st.integers(1, most)), draw(st.integers(1, 3))
    layout = {
        "cluster__workers_per_host": per_host,
        "workload": {"parameters": draw(st.sampled_from([1, 7, 1000]))},
    }
    strategy = draw(strategies(workers, **layout))
    when: list[dict[str, Any]] = [
        {"worker": 0},
        {"probability": 0.3},
        {"host": 0, "spells": {"every": "30 ms", "last": "20 ms"}},
        {"rack": 0, "period": "50 ms", "busy": "10 ms", "offset": "5 ms"},
    ]
    stragglers = draw(st.lists(st.sampled_from(when), max_size=2, unique_by=str))
    compute = {"time": draw(st.sampled_from(DISTRIBUTIONS)), "backward": draw(st.sampled_from([0, 0.67]))}
    costs = draw(some(memory_bandwidth=["1 MB/s"], apply_overhead=["2 ms"], cores_per_host=[1, 2]))
    return {
        **{f"cluster__{key}": value for key, value in costs.items()},
        "cluster__workers": workers,
        **layout,
        "cluster__servers": draw(servers(workers, strategy)),
        "cluster__compute": compute,
        "cluster__network": draw(networks(-(-workers // per_host))),
        "cluster__stragglers": [{**item, "slowdown": 3} for item in stragglers],
        "strategy": strategy,
        "seed": draw(st.integers(0, 99)),
    }


def checked(config: Scenario) -> Result:
    """The run, once it is known to keep the laws of every run; rings computed and carried are the same."""
    simulation = Simulation(Plan.of(config), shortcuts=False)
    simulation.run()
    run = simulation.result()
    pd.testing.assert_frame_equal(lockstep.simulate(config).records, run.records, check_exact=True)
    metrics, records = json.loads(run.to_json()), run.records
    assert (records["end"] >= records["start"]).all()
    updates = records[records["event"] == "update"]
    if (
        STRATEGIES[config.strategy.name].owners is not OneModelEach
    ):  # models may come from workers that are ahead
        assert (updates["staleness"] >= 0).all()
    for _, made in updates.sort_values("version", kind="stable").groupby("node"):
        assert made["version"].unique().tolist() == list(range(made["version"].nunique()))
        assert made["end"].is_monotonic_increasing
    shares = run.breakdown.to_numpy()
    assert (shares >= 0).all()
    assert np.allclose(shares.sum(axis=1), 1) or metrics["duration_s"] == 0
    assert all(0 <= busy <= 1 for busy in (metrics["utilisation"] or {}).values())
    assert run.utilisation is not None
    if config.cluster.network.burst is None:
        assert run.utilisation["busy"].between(-1e-9, 1 + 1e-9).all()
    assert metrics["samples"] <= BATCH * _computed(run)
    assert metrics["bottleneck"] is None or len(metrics["bottleneck"]) > 10
    return run


def _computed(run: Result) -> int:
    return int((run.records["event"] == "gradient").sum())


@examples()
@given(clusters(), st.integers(1, 6))
def test_a_run_of_steps_loses_nothing(changes: dict[str, Any], steps: int) -> None:
    config = scenario(**changes, stop={"steps": steps})
    check_that_nothing_is_lost(config, checked(config), steps)


@pytest.mark.real
@examples(0.2)
@given(clusters(most=3), st.integers(1, 4))
def test_a_real_run_of_steps_loses_nothing(changes: dict[str, Any], steps: int) -> None:
    config = scenario(**changes, stop={"steps": steps})
    check_that_nothing_is_lost(config, lockstep.run(config), steps)


def check_that_nothing_is_lost(config: Scenario, run: Result, steps: int) -> None:
    values, name = config.strategy.parameters, config.strategy.name
    factors = values if find(name, values).has_servers else {}  # which others do without
    serving = factors.get("consistency", name)
    computed, applied = _computed(run), run.metrics["samples"] // BATCH
    assert computed == config.cluster.workers * steps
    if serving in ("k-sync", "k-batch-sync"):
        assert applied + run.metrics["dropped"] <= computed  # others were given up
    elif serving == "backup-workers":
        assert applied + run.metrics["dropped"] >= computed  # a shard may drop what another applies
    else:
        assert applied == computed
    if (
        STRATEGIES[config.strategy.name].owners is OneModelEach
    ):  # all models that were sent are merged, even late
        updates, sent = (run.records[run.records["event"] == event] for event in ("update", "message"))
        assert (updates["batches"] == 0).sum() == len(sent)
    loop = factors.get("worker_loop", name)
    if serving in ("ssp", "ssp-blocking") and loop in ("ssp", "ssp-blocking", "asynchronous"):
        assert _clock_gap(run) <= values["bound"]


@pytest.mark.slow
@examples(0.6)
@given(clusters(), st.integers(1, 12))
def test_a_run_of_updates_makes_as_many(changes: dict[str, Any], updates: int) -> None:
    assert checked(scenario(**changes, stop={"updates": updates})).metrics["updates"] == updates


@pytest.mark.slow
@examples(0.4)
@given(clusters(), st.floats(1e-3, 0.3))
def test_nothing_happens_after_the_time_is_up(changes: dict[str, Any], time: float) -> None:
    run = checked(scenario(**changes, stop={"time": f"{time!r} s"}))
    begun = run.records["event"].isin(["gradient", "work"])  # recorded when they begin, to the end
    assert not (run.records.loc[~begun, "end"] > time).any()


def _clock_gap(run: Result) -> int:
    """The most mini-batches that a worker had done more than another when it began its next one."""
    gradients = run.records[run.records["event"] == "gradient"]
    starts, ends = (
        [np.sort(times) for _, times in gradients.groupby("node")[column]] for column in ("start", "end")
    )
    slowest = [
        np.min([np.searchsorted(other, start, side="right") for other in ends], axis=0) for start in starts
    ]
    return max(int((np.arange(len(done)) - done).max()) for done in slowest)
