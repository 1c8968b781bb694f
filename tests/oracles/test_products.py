"""The family is a product: worker loop × consistency × correction, of named points, run as one strategy."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep import Scenario, ScenarioError
from lockstep.strategies import STRATEGIES, StrategyError, find
from lockstep.strategies.strategy import FACTORS
from lockstep.workloads import build
from tests.support.nightly import drawn
from tests.support.scenarios import scenario
from tests.support.worlds import TIMES, learning

SERVED = [name for name, strategy in STRATEGIES.items() if strategy.has_servers]


def distinct(factor: str) -> list[str]:
    """One name for each thing that this factor of a strategy can be."""
    named: dict[Any, str] = {}
    for name in SERVED:
        named.setdefault(getattr(STRATEGIES[name], factor), name)
    return list(named.values())


def products() -> list[dict[str, str]]:
    """All that can be put together."""
    found = []
    for factors in product(*(distinct(factor) for factor in FACTORS)):
        strategy = dict(zip(FACTORS, factors, strict=True))
        try:
            find(factors[0], strategy)
        except StrategyError:
            continue
        found.append(strategy)
    return found


# The corrections that scale by staleness go through a server as these do, who also look back.
LOOKING_BACK = ("synchronous", "dc-asgd", "adag-distance")
PRODUCTS = [strategy for strategy in products() if strategy["correction"] in LOOKING_BACK]


@pytest.mark.parametrize("correction", LOOKING_BACK)
def test_there_are_many_products(correction: str) -> None:
    """Of dc-asgd: all but bounded-delay with ssp, whose bounds are two things."""
    assert sum(strategy["correction"] == correction for strategy in PRODUCTS) >= 24


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy", drawn(PRODUCTS, one_in=4, family=lambda strategy: strategy["correction"]), ids=str
)
def test_every_product_runs_and_learns(strategy: dict[str, str]) -> None:
    """Nobody deadlocks, every mini-batch is dealt with, and the loss falls."""
    config = learning(
        cluster__workers=3,
        cluster__servers=2 if find(strategy["worker_loop"], strategy).sharded else 1,
        cluster__compute={"time": TIMES[0]},
        strategy={"name": strategy["worker_loop"], **strategy, "k": 2, "bound": 1, "learning_rate": 0.1},
        stop={"steps": 12},
    )
    run = lockstep.simulate(config)
    assert run.metrics["loss"] < at_the_start(config)
    assert (run.records["staleness"][run.records["event"] == "update"] >= 0).all()
    done = run.metrics["samples"] // config.workload.batch_size + run.metrics["dropped"]
    if strategy["consistency"] in ("k-sync", "k-batch-sync"):
        assert done <= 36  # others are given up
    elif strategy["consistency"] == "backup-workers":
        assert done >= 36
    else:
        assert done == 36


def at_the_start(config: Scenario) -> float:
    """The held-out loss before training."""
    learner = build(config.workload, config.cluster.workers, config.seed)
    return learner.evaluate(learner.initial()).loss


UNPUBLISHED: list[dict[str, Any]] = [
    {"name": "ssp-blocking", "correction": "dc-asgd", "adaptive_compensation": True},
    {"name": "soft-sync", "n": 2, "correction": "dynsgd", "momentum": 0.5},
    {"name": "downpour-blocking", "consistency": "ssp", "bound": 1},
    {"name": "downpour", "consistency": "k-batch-async", "k": 2},
    {"name": "dynsgd", "server_optimizer": "adagrad", "server_learning_rate": 0.02},
    {"name": "agn", "consistency": "backup-workers", "optimizer": "adam", "learning_rate": 0.02},
    {"name": "bounded-delay", "consistency": "k-batch-async", "k": 2, "correction": "staleness-aware"},
    {"name": "eamsgd", "consistency": "ssp", "correction": "adag-distance", "communication_window": 3},
    {"name": "synchronous", "chunks": 2, "correction": "dc-asgd", "optimizer": "adam", "warmup_steps": 3},
]


@pytest.mark.parametrize("strategy", drawn(UNPUBLISHED, one_in=3), ids=str)
def test_products_that_nobody_has_published_learn_in_both_engines(strategy: dict[str, Any], engine) -> None:
    config = scenario(
        cluster__workers=4,
        cluster__compute={"time": {"distribution": "lognormal", "mean": "3 ms", "cv": 0.5}},
        workload={"dataset": "digits", "model": "mlp", "batch_size": 16},
        strategy=strategy,
        stop={"steps": 60},  # in whatever order the updates come: at 24 some had learned nothing yet
    )
    run = engine(config)
    assert run.metrics["loss"] < 0.9 * at_the_start(config)
    assert run.metrics["accuracy"] > 0.25  # of ten digits


@pytest.mark.parametrize(
    ("strategy", "key", "words"),
    [
        ({"name": "downpour", "correction": "dc-asgd"}, "correction", "corrects gradients, not deltas"),
        ({"name": "dc-asgd", "worker_loop": "agn"}, "worker_loop", "corrects gradients, not deltas"),
        (
            {"name": "aeasgd", "consistency": "synchronous"},
            "consistency",
            "pulls at any time and takes one-way",
        ),
        (
            {"name": "synchronous", "worker_loop": "downpour"},
            "worker_loop",
            "holds no answer back, unlike",
        ),
        (
            {"name": "aeasgd", "worker_loop": "ssp"},
            "worker_loop",
            "tells its clock, unlike .* .valid: ssp",
        ),
        ({"name": "downpour", "consistency": "ssp"}, "consistency", "holds no answer back, unlike ssp's"),
        ({"name": "bounded-delay", "consistency": "k-async"}, "consistency", "takes a push before it has"),
        ({"name": "bounded-delay", "consistency": "ssp"}, "consistency", "bound would mean two things"),
        ({"name": "k-sync", "consistency": "ssp"}, "consistency", "breaks off a round .* .valid: k-sync"),
        ({"name": "ssp", "worker_loop": "k-batch-sync"}, "worker_loop", "breaks off .* .valid: k-batch-sync"),
        (
            {"name": "ssp", "worker_loop": "k-sync", "consistency": "k-sync"},
            "worker_loop",
            "of k-sync go with each other only",
        ),
        ({"name": "agn", "consistency": "bmuf"}, "consistency", "each push .* unlike bmuf's .valid: synchr"),
        (
            {"name": "ssp", "correction": "all-reduce"},
            "correction",
            "'all-reduce' is not a strategy with",
        ),
        ({"name": "ssp", "correction": "dcasgd"}, "correction", "did you mean 'dc-asgd'"),
        ({"name": "ssp", "consitency": "ssp"}, "consitency", "did you mean 'consistency'"),
        (
            {"name": "model-averaging", "consistency": "ssp", "optimizer_state": "average"},
            "optimizer_state",
            "averages the state along, unlike ssp's .valid: synchronous, model-averaging",
        ),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_one_clear_error(strategy: dict[str, str], key: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        lockstep.simulate(scenario(strategy=strategy))
    assert caught.value.key == f"strategy.{key}"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "strategy", [{"name": "dynsgd"}, {"name": "asynchronous", "correction": "dc-asgd"}], ids=str
)
def test_a_hierarchy_hides_whose_push_is_how_stale(strategy: dict[str, str]) -> None:
    with pytest.raises(ScenarioError, match="relays push sums") as caught:
        lockstep.simulate(scenario(strategy=strategy, cluster__servers={"hierarchy": {"groups": 2}}))
    assert caught.value.key == "cluster.servers.hierarchy"


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "asynchronous", "consistency": "synchronous", "chunks": 3},
        {"name": "model-averaging", "consistency": "synchronous", "chunks": 3},
        {"name": "synchronous", "consistency": "ssp", "chunks": 3},
    ],
    ids=str,
)
def test_what_only_one_side_can_cut_stays_whole(strategy: dict[str, Any]) -> None:
    whole = {key: value for key, value in strategy.items() if key != "chunks"}
    cut, uncut = (lockstep.simulate(learning(strategy=s)) for s in (strategy, whole))
    assert np.array_equal(cut.parameters, uncut.parameters)
    assert any("chunks means nothing" in warning for warning in cut.warnings)


def test_a_server_that_brings_its_optimizer_takes_no_other() -> None:
    run = lockstep.simulate(scenario(strategy={"name": "bmuf", "server_optimizer": "adam"}))
    assert any("server_optimizer means nothing to bmuf" in warning for warning in run.warnings)


@pytest.mark.slow
def test_elastic_averaging_is_stable_with_many_workers() -> None:
    """All meet the centre at the same instant; α is such that they do not throw it about."""
    for name in ("easgd", "aeasgd", "eamsgd"):
        config = learning(
            cluster__workers=32, strategy={"name": name, "communication_window": 4}, stop={"steps": 60}
        )
        assert lockstep.simulate(config).metrics["loss"] < 0.1 * at_the_start(config)


def test_bounded_delay_lets_the_faster_run_ahead() -> None:
    """A worker begins its c-th mini-batch when all have pushed c − 1 − bound, and not later."""
    strategy = {"name": "bounded-delay", "bound": 3}
    slow = [{"worker": 1, "slowdown": 2}]
    config = scenario(cluster__workers=2, strategy=strategy, cluster__stragglers=slow, stop={"steps": 12})
    records = lockstep.simulate(config).records
    starts = records["start"][(records["event"] == "gradient") & (records["node"] == 0)]
    expected = [0.01 * max(c, 2 * (c - 3)) for c in range(12)]
    assert starts.tolist() == pytest.approx(expected)


def test_a_warm_start_is_over_when_the_first_group_has_left(engine) -> None:
    """It makes one update of the two that it should make alone; the others must not wait for the second."""
    config = scenario(
        cluster__workers=3,
        cluster__servers={"hierarchy": {"groups": 3}},
        strategy={"name": "asynchronous", "warm_start": 2},
        stop={"steps": 1},
    )
    assert engine(config).metrics["updates"] == 3


def test_a_relay_whose_children_have_gone_still_waits_for_its_answer_and_leaves(engine) -> None:
    """A last commit, "leave" and the end of the worker come at once, while the answer is slow to come."""
    config = scenario(
        cluster__workers=2,
        cluster__servers={"count": 2, "hierarchy": {"groups": 2}},
        cluster__stragglers=[{"worker": 1, "slowdown": 5}],
        strategy={"name": "aeasgd", "communication_window": 1, "warm_start": 4},
        stop={"steps": 2},
    )
    assert engine(config).metrics["updates"] == 4
