"""`lockstep recommend` where a model may be split, or must be, to fit into the memory of its devices."""

from typing import Any

import pytest

import lockstep
from lockstep import ScenarioError, fitting
from lockstep.job.plan import Plan
from lockstep.recommendation import Recommendation
from lockstep.recommendation.ranking import best
from lockstep.recommendation.space import Space, apply
from tests.support.recommending import found
from tests.support.scenarios import scenario

# 8 GB of parameters and gradient, as much of them on each stage: 4 stages of 2 GB
LARGE: dict[str, Any] = {
    "cluster__workers": 8,
    "cluster__memory": "2.5 GB",
    "workload": {"parameters": 10**9, "layers": 8, "batch_size": 4},
    "strategy": "all-reduce",
}


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_what_needs_four_stages_is_never_recommended_with_fewer() -> None:
    result = found(scenario(**LARGE), "all-reduce", "synchronous", "hogwild", budget=8)
    tried = [candidate for candidate, row in result.search_.rows.items() if row["status"] == "ok"]
    assert tried
    for candidate in [*tried, *(each.candidate for each in result.ranking)]:
        settings = dict(candidate.settings)
        assert settings["parallelism.pipeline"] >= 4
        assert f"pipeline={settings['parallelism.pipeline']}" in candidate.label  # each row says so
    for row in result.search_.rows.values():
        assert row.get("memory_bytes", 0) <= 2.5e9
    assert result.own is None  # the file's does not fit
    assert fitting.short(Plan.of(result.best)) is None
    assert "share one memory" in result.left_out["hogwild"] or "memory" in result.left_out["hogwild"]
    assert best(result.ranking).candidate.strategy in ("all-reduce", "synchronous")
    assert lockstep.simulate(result.best).metrics["memory_bytes"] <= 2.5e9


def test_a_section_is_searched_and_what_fits_without_one_is_not() -> None:
    small = {**LARGE, "workload": {"parameters": 1000, "layers": 8, "batch_size": 4}}
    space = Space(scenario(**small), "all-reduce", "throughput")
    assert not any(key.startswith("parallelism") for key in space.knobs)
    split = Space(scenario(**small, parallelism={"pipeline": 2}), "all-reduce", "throughput")
    assert split.knobs["parallelism.pipeline"] == (1, 2, 4, 8)
    assert split.knobs["parallelism.micro_batches"] == (1, 2, 4)
    assert split.knobs["parallelism.order"] == ("1f1b", "gpipe", "zero-bubble")
    assert split.knobs["parallelism.recompute"] == (False, True)
    start = split.candidate(split.start)
    assert start.label.startswith("all-reduce pipeline=2 micro_batches=2 order=1f1b recompute=False")
    again = apply(scenario(**small, parallelism={"pipeline": 2}), start)
    assert (again.split.pipeline, again.split.micro_batches, again.replicas) == (2, 2, 4)
    alone = split.candidate({**split.start, "parallelism.pipeline": 0})
    assert "order" not in alone.label  # of one stage all orders are one
    fewer = split.candidate({**split.start, "cluster.workers": 2, "parallelism.pipeline": 2})
    assert apply(scenario(**small, parallelism={"pipeline": 2}), fewer).replicas == 1
    own = Space(scenario(**small, parallelism={"pipeline": 2}), "pipedream", "throughput")
    assert {"parallelism.order", "parallelism.micro_batches"}.isdisjoint(own.knobs)


def test_where_nothing_fits_no_strategy_is_left() -> None:
    with pytest.raises(ScenarioError, match=r"all-reduce: .*with whatever parallelism"):
        Recommendation(scenario(**{**LARGE, "cluster__memory": "100 MB"}), None, ["all-reduce"], 1)
