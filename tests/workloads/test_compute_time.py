"""Durations of gradients: right distributions, and one stream per worker whoever asks."""

import math

import numpy as np
import pytest
from pydantic import TypeAdapter

from lockstep import scenarios
from lockstep.workloads import ComputeTime, Sizes
from lockstep.workloads.compute_time import compute_times, mean_gradient_s
from lockstep.workloads.slowness import Chance, Slowness

ADAPTER: TypeAdapter[scenarios.Distribution] = TypeAdapter(scenarios.Distribution)


def distribution(kind: str, **values: object) -> scenarios.Distribution:
    """A distribution as a scenario writes it; numbers without a unit of time stay numbers."""
    return ADAPTER.validate_python({"distribution": kind, **values})


def draws(time: scenarios.Distribution, count: int = 200_000, slowness: Slowness | None = None) -> np.ndarray:
    source = ComputeTime(time, 1, 0, slowness)
    return np.array([source.draw(0.0) for _ in range(count)])


# (distribution, mean, variance) in seconds, by closed form
CLOSED_FORMS = [
    (("constant", {"value": "2 s"}), 2.0, 0.0),
    (("uniform", {"low": "1 s", "high": "4 s"}), 2.5, 9 / 12),
    (("exponential", {"mean": "3 s"}), 3.0, 9.0),
    (("shifted-exponential", {"shift": "1 s", "mean": "2 s"}), 3.0, 4.0),
    (("lognormal", {"mean": "2 s", "cv": 0.5}), 2.0, 1.0),
    (("lognormal", {"mean": "30 ms", "cv": 0.2}), 0.03, 0.006**2),
    (("gamma", {"mean": "2 s", "cv": 0.5}), 2.0, 1.0),
    (("gamma", {"mean": "2 s", "cv": 2.0}), 2.0, 16.0),
    # x_m = mean·(a−1)/a; variance x_m²·a/((a−1)²(a−2))
    (("pareto", {"mean": "3 s", "shape": 6.0}), 3.0, 2.5**2 * 6 / (25 * 4)),
]


@pytest.mark.parametrize(("form", "mean", "variance"), CLOSED_FORMS)
def test_mean_and_variance(form: tuple[str, dict[str, object]], mean: float, variance: float) -> None:
    time = distribution(form[0], **form[1])
    sample = draws(time)
    # 200,000 draws: the mean within 5 standard errors, the variance within 6% (its own error is the tail's)
    assert sample.mean() == pytest.approx(mean, abs=5 * math.sqrt(variance / len(sample)) + 1e-12)
    assert sample.var() == pytest.approx(variance, rel=0.06, abs=1e-12)
    assert time.mean_s == pytest.approx(mean)


def test_pareto_starts_at_its_least_value_and_has_its_tail() -> None:
    sample = draws(distribution("pareto", mean="3 s", shape=2.5))
    least = 3 * 1.5 / 2.5
    assert least <= sample.min() < least * 1.001
    assert (sample > 2 * least).mean() == pytest.approx(2**-2.5, rel=0.02)


def test_lognormal_is_normal_in_the_logarithm() -> None:
    logs = np.log(draws(distribution("lognormal", mean="1 s", cv=0.5)))
    centred = (logs - logs.mean()) / logs.std()
    assert abs((centred**3).mean()) < 0.03
    assert (centred**4).mean() == pytest.approx(3, rel=0.03)


def test_empirical_draws_the_sample_evenly(tmp_path) -> None:
    file = tmp_path / "times.txt"
    file.write_text("0.1\n0.2\n0.4\n0.4\n")
    values, counts = np.unique(draws(distribution("empirical", file=str(file)), 40_000), return_counts=True)
    assert values.tolist() == [0.1, 0.2, 0.4]
    assert counts / 40_000 == pytest.approx([0.25, 0.25, 0.5], rel=0.05)


def test_slowdown_multiplies_every_draw() -> None:
    time = distribution("gamma", mean="1 s", cv=1.0)
    assert draws(time, 50, slowness=Slowness(3.0)) == pytest.approx(3 * draws(time, 50))


@pytest.mark.parametrize("form", [form for form, *_ in CLOSED_FORMS])
def test_draws_do_not_depend_on_the_block(form: tuple[str, dict[str, object]]) -> None:
    time = distribution(form[0], **form[1])
    one_by_one, blocks = ComputeTime(time, 7, 2), ComputeTime(time, 7, 2)
    singles = []
    for _ in range(100):
        one_by_one._size = 1
        singles.append(one_by_one.draw(0.0))
    assert singles == [blocks.draw(0.0) for _ in range(100)]


@pytest.mark.parametrize("form", [form for form, *_ in CLOSED_FORMS])
@pytest.mark.parametrize("slow", [False, True])
def test_many_at_once_are_those_one_after_the_other(form: tuple[str, dict[str, object]], slow: bool) -> None:
    def times() -> ComputeTime:
        slowness = Slowness(2.0, [Chance(3.0, 0.5, np.random.default_rng(1))]) if slow else None
        return ComputeTime(distribution(form[0], **form[1]), 5, 2, slowness, exchange_s=0.25)

    one, many = times(), times()
    expected = [one.draw(0.0) for _ in range(2100)]
    found = [*many.draws(3), many.draw(0.0), *many.draws(2000), *many.draws(0)]
    found += [many.draw(0.0) for _ in range(len(expected) - len(found))]
    assert found == expected


def test_streams_differ_by_worker_and_seed() -> None:
    time = distribution("exponential", mean="1 s")
    keys = [(seed, worker) for seed in range(3) for worker in range(3)]
    assert len({ComputeTime(time, *key).draw(0.0) for key in keys}) == 9
    assert ComputeTime(time, 5, 1).draw(0.0) == ComputeTime(time, 5, 1).draw(0.0)


def test_workers_are_independent() -> None:
    time = distribution("exponential", mean="1 s")
    first, second = (np.array([c.draw(0.0) for _ in range(20_000)]) for c in
                     (ComputeTime(time, 3, 0), ComputeTime(time, 3, 1)))  # fmt: skip
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03


def scenario(compute: object) -> scenarios.Scenario:
    return scenarios.Scenario.model_validate(
        {"name": "t", "cluster": {"workers": 3, "compute": compute,
                                  "stragglers": [{"worker": 1, "slowdown": 4.0}]},
         "workload": {"parameters": 10, "flops": 1e9, "batch_size": 8},
         "strategy": {"name": "synchronous"}, "stop": {"steps": 1}}
    )  # fmt: skip


SIZES = Sizes(10, 4, 8, None, 8e9)


def test_stragglers_of_a_scenario() -> None:
    case = scenario({"time": {"distribution": "constant", "value": "2 s"}})
    assert [time.draw(0.0) for time in compute_times(case, SIZES)] == [2.0, 8.0, 2.0]
    assert mean_gradient_s(case, SIZES) == 2.0


def test_what_exchanging_takes_is_there_once_and_not_for_a_single_replica() -> None:
    case = scenario({"time": {"distribution": "constant", "value": "2 s"}})

    def draws_of(workers: int, **sections: object) -> list[float]:
        cluster = case.cluster.model_dump() | {"workers": workers, "exchange_overhead": "500 ms"}
        changed = case.model_dump() | {"cluster": cluster | {"stragglers": []}} | sections
        found = scenarios.Scenario.model_validate(changed)
        assert mean_gradient_s(found, SIZES) == 2.0  # of a worker by itself, which speed-ups are relative to
        return [time.draw(0.0) for time in compute_times(found, SIZES)]

    assert draws_of(1) == [2.0]
    assert draws_of(2) == draws_of(8)[:2] == [2.5, 2.5]
    assert draws_of(2, parallelism={"pipeline": 2}) == [2.0, 2.0]  # one replica
    slow = case.cluster.model_copy(update={"exchange_overhead": 0.5})
    times = compute_times(case.model_copy(update={"cluster": slow}), SIZES)
    assert [time.draw(0.0) for time in times] == [2.5, 10.0, 2.5]  # a straggler is slow at all it does


def test_time_from_peak_and_efficiency() -> None:
    case = scenario({"peak": "4 TFLOP/s", "efficiency": 0.5})
    assert mean_gradient_s(case, SIZES) == pytest.approx(8e9 / 2e12)
    assert compute_times(case, SIZES)[0].draw(0.0) == pytest.approx(8e9 / 2e12)


def test_measured_times_cannot_be_drawn() -> None:
    with pytest.raises(scenarios.ScenarioError, match="only in a real run") as caught:
        compute_times(scenario("measured"), SIZES)
    assert caught.value.key == "cluster.compute"
