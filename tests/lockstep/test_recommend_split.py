"""`lockstep recommend` where a model may be split, or must be, to fit into the memory of its devices."""

from typing import Any

import pytest

import lockstep
from lockstep import Scenario, ScenarioError, room
from lockstep.analysis import table
from lockstep.job.plan import Plan
from lockstep.recommendation import Recommendation, runs
from lockstep.recommendation.in_step import averages_gradients
from lockstep.recommendation.ranking import Goal, best
from lockstep.recommendation.runs import EXCHANGES, Job, simulate_all, timed
from lockstep.recommendation.search import Search
from lockstep.recommendation.space import Candidate, Space, apply
from lockstep.strategies import STRATEGIES
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
    assert room.short(Plan.of(result.best)) is None
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


def test_units_and_no_cut_at_all_are_searched_beside_cut_sequences() -> None:
    """As many units as there are layers; `sequence` goes where nothing is cut."""
    work = {"parameters": 10**6, "layers": 12, "batch_size": 4, "activation": "1 MB"}
    split = {"tensor": 2, "sequence": True}
    what = scenario(cluster__workers=8, cluster__workers_per_host=4, workload=work, parallelism=split)
    space = Space(what, "fsdp", "throughput")
    assert space.knobs["parallelism.tensor"] == (1, 2, 4)
    assert space.knobs["strategy.units"] == (1, 4, 12)
    assert space.knobs["strategy.zero"] == (1, 2, 3)
    for tensor in (0, 1):
        found = apply(what, space.candidate({**space.start, "parallelism.tensor": tensor}))
        assert found.split.sequence == (found.split.tensor > 1)


def test_where_nothing_fits_no_strategy_is_left() -> None:
    with pytest.raises(ScenarioError, match=r"all-reduce: .*with whatever parallelism"):
        Recommendation(scenario(**{**LARGE, "cluster__memory": "100 MB"}), None, ["all-reduce"], 1)


SPLIT: dict[str, Any] = {
    "cluster__workers": 8,
    "workload": {"parameters": 10**6, "layers": 8, "batch_size": 8, "activation": "1 MB"},
    "cluster__network": {"bandwidth": "10 Gbit/s", "latency": "10 us"},
    "parallelism": {"pipeline": 4},
    "strategy": "all-reduce",
}


def jobs(what: Scenario, *settings: dict[str, Any]) -> list[Job]:
    candidates = [Candidate("all-reduce", tuple(each.items())) for each in settings]
    return [Job(each, apply(what, each), False) for each in candidates]


def split(**changes: Any) -> dict[str, Any]:
    return {f"parallelism.{key}": value for key, value in {"pipeline": 4, **changes}.items()}


def test_steps_that_are_all_the_same_are_simulated_a_few_times_only() -> None:
    given = jobs(scenario(**SPLIT), split(order="1f1b"), split(order="gpipe"), split(pipeline=1))
    for job, row in zip(timed(given, 1), simulate_all(given, 1), strict=True):
        assert row["stop.steps"] == 3
        long = lockstep.simulate(job.bounded).metrics
        assert row["throughput"] == pytest.approx(long["throughput"], rel=1e-3)
        assert long["updates"] == EXCHANGES


def test_what_is_random_or_overlaps_is_simulated_for_long() -> None:
    random = {"time": {"distribution": "lognormal", "mean": "10 ms", "cv": 0.3}}
    burst = {"bandwidth": "10 Gbit/s", "burst": {"size": "1 MB", "line_rate": "40 Gbit/s"}}
    assert not jobs(scenario(**SPLIT, cluster__compute=random), split())[0].deterministic
    assert not jobs(scenario(**{**SPLIT, "cluster__network": burst}), split())[0].deterministic
    uneven = scenario(**{**SPLIT, "parallelism": {"pipeline": 4, "cut": [1, 2, 3]}})
    (late,) = jobs(uneven, split(order="zero-bubble"))  # stage 0 begins before the last one has ended
    assert late.deterministic
    assert "stop.steps" not in next(simulate_all([late], 1))


@pytest.mark.usefixtures("few")
def test_seeds_of_what_is_not_random_are_not_simulated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Scenario] = []
    usual = runs.simulated
    monkeypatch.setattr(runs, "simulated", lambda some, *more: made.extend(some) or usual(some, *more))
    result = Recommendation(scenario(**SPLIT), None, ["all-reduce"], 1)
    result.search_.run(4, 1, lambda: None)
    made.clear()
    result.rank()
    assert {each.seed for each in made} == {result.scenario.seed + 1}
    for each in result.ranking:
        assert [row["seed"] for row in each.rows] == [result.scenario.seed + 1, result.scenario.seed + 2]
        assert len({row["throughput"] for row in each.rows}) == 1
        step_s = each.rows[0]["duration_s"] / 3
        assert result.scenario_of(each).stop.time == pytest.approx((runs.EXCHANGES + 0.5) * step_s)


@pytest.mark.parametrize(
    "name", [name for name, strategy in STRATEGIES.items() if averages_gradients(strategy, {})]
)
def test_what_is_deterministic_does_the_same_with_all_seeds(name: str) -> None:
    what = scenario(strategy=name, cluster__network={"bandwidth": "1 Mbit/s"}, stop={"steps": 6})
    (job,) = [Job(Candidate(name), what, False)]
    assert job.deterministic
    one, two = (table.row(lockstep.simulate(job.seeded(seed).scenario)) for seed in (1, 2))
    assert {**one, "seed": 2} == two


def test_what_is_far_behind_is_not_simulated_for_long() -> None:
    random = {"time": {"distribution": "lognormal", "mean": "100 ms", "cv": 0.1}}
    what = scenario(**SPLIT, cluster__compute=random)
    spaces = {"all-reduce": Space(what, "all-reduce", "throughput")}
    search = Search(what, spaces, Goal("throughput", False))
    given = jobs(what, split(micro_batches=8), split(micro_batches=1), split(pipeline=1))
    search._simulate([job.candidate for job in given])
    good, bad, best = (search.rows[job.candidate] for job in given)
    assert bad["stop.steps"] == 3
    assert "stop.steps" not in best
    assert "stop.steps" not in good
    assert best["throughput"] > good["throughput"] > bad["throughput"] * 2


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_stages_and_parts_of_layers_are_searched_together() -> None:
    """Two boxes of four devices with a fast link inside: layers are cut in a box, stages between boxes."""
    boxes = {
        "cluster__workers": 8,
        "cluster__workers_per_host": 4,
        "cluster__memory": "2.5 GB",
        "cluster__network": {
            **{"bandwidth": "10 Gbit/s", "latency": "10 us"},
            "intra_host": {"bandwidth": "2 Tbit/s", "latency": "2 us"},
        },
        "cluster__compute": {"time": {"distribution": "constant", "value": "2 s"}},
        "workload": {"parameters": 10**9, "layers": 8, "batch_size": 8, "activation": "8 MB"},
        "strategy": "all-reduce",
        "stop": {"steps": 2},
    }
    first = best(found(scenario(**boxes), "all-reduce", budget=24).ranking)
    settings = dict(first.candidate.settings)
    assert (settings["parallelism.pipeline"], settings["parallelism.tensor"]) == (2, 4)
