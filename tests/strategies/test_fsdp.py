"""Sharded data parallelism is all-reduce, whatever is shared out; who owns what; ends; what is refused."""

import gc
from functools import cache
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep import Result, Scenario, ScenarioError
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.job.sized import About
from lockstep.strategies import StrategyError
from lockstep.strategies.shares import groups, sharded
from tests.support.nightly import drawn
from tests.support.scenarios import ENGINES, scenario

CNN = {"dataset": "digits", "model": "cnn", "batch_size": 16}  # five layers
FORMS: list[dict[str, Any]] = [
    {"zero": 1},
    {"zero": 2, "buckets": 3},
    {"zero": 3},
    {"zero": 3, "units": 3},
    {"zero": 3, "units": 5, "prefetch": 0},
    {"zero": 3, "units": 5, "prefetch": 2, "reshard": False},
]


def case(name: str, workers: int = 2, *, recompute: bool = True, **more: Any) -> Scenario:
    """In passes even where the strategy would not: what is random in a layer is then the same."""
    given: dict[str, Any] = {"parallelism": {"recompute": True}} if recompute else {}
    changes = {
        key: more.pop(key) for key in [*more] if "__" in key or key in ("workload", "stop", "parallelism")
    }
    usual = {
        "cluster__workers": workers,
        "cluster__network": {"bandwidth": "1 Gbit/s", "latency": "50 us"},
        "workload": CNN,
        "stop": {"steps": 4},
    }
    return scenario(**{**usual, **given, **changes}, strategy={"name": name, "learning_rate": 0.1, **more})


@cache
def all_reduced(workers: int = 2, optimizer: str = "sgd", micro_batches: int = 0) -> Result:
    """The run that many are compared with."""
    split = {"parallelism": {"micro_batches": micro_batches}} if micro_batches else {}
    return lockstep.simulate(case("all-reduce", workers, optimizer=optimizer, **split))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_two_workers_end_with_the_bits_of_all_reduce(form: dict[str, Any], optimizer: str) -> None:
    """Where two numbers are added, the order does not matter."""
    ring = all_reduced(2, optimizer)
    found = lockstep.simulate(case("fsdp", optimizer=optimizer, **form))
    assert np.array_equal(found.parameters, ring.parameters)
    assert found.metrics["samples"] == ring.metrics["samples"] == 2 * 4 * 16
    assert found.metrics["updates"] == 4
    assert found.metrics["staleness"]["max"] == 0


@pytest.mark.parametrize("parallelism", [{}, {"micro_batches": 4}], ids=str)
def test_units_in_bf16_end_with_the_bits_of_whole_gradients(parallelism: dict[str, Any]) -> None:
    """Without micro-batches those are computed by one autocast around the whole model."""
    work = {"dataset": "digits", "model": "mlp", "batch_size": 16, "precision": "bf16"}
    given: dict[str, Any] = {"recompute": False, "workload": work, "parallelism": parallelism}
    ring = lockstep.simulate(case("all-reduce", **given))
    found = lockstep.simulate(case("fsdp", units=2, **given))
    assert found.parameters == pytest.approx(ring.parameters, rel=0, abs=1e-7 if parallelism else 0)
    full = lockstep.simulate(case("fsdp", units=2, **given | {"workload": work | {"precision": "float32"}}))
    assert not np.array_equal(found.parameters, full.parameters)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize(
    ("name", "form", "workers"),
    [
        *[("fsdp", form, 3) for form in FORMS],
        ("hsdp", {"group_size": 2, "units": 3}, 4),
        ("hsdp", {"group_size": 2, "zero": 2, "buckets": 2}, 6),
        ("hsdp", {"group_size": 1, "units": 2}, 3),
        ("hsdp", {"group_size": 3, "units": 2, "prefetch": 0}, 3),
    ],
    ids=str,
)
def test_more_workers_add_in_another_order(name: str, form: Any, workers: int, optimizer: str) -> None:
    """Not with Adam: where a gradient is next to nothing it divides by that: rounding shows."""
    ring = all_reduced(workers, optimizer)
    found = lockstep.simulate(case(name, workers, optimizer=optimizer, **form))
    assert found.parameters == pytest.approx(ring.parameters, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_micro_batches_are_summed_for_the_owner_one_by_one(form: dict[str, Any]) -> None:
    split = {"parallelism": {"micro_batches": 4}}
    ring = all_reduced(micro_batches=4)
    found = lockstep.simulate(case("fsdp", **split, **form))
    assert found.parameters == pytest.approx(ring.parameters, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", ["fsdp", "hsdp"])
def test_shares_of_gradients_are_summed_as_they_come(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there during the last micro-batch does not depend on how many there were before it."""

    def there(micro_batches: int) -> int:
        found: list[int] = []
        usual = Node.forward

        def forward(node: Node, parameters: Any, micro: int, *more: Any) -> Any:
            if node.rank == 0 and micro == micro_batches - 1:
                gc.collect()
                vectors = {id(each): each.nbytes for each in gc.get_objects() if type(each) is About}
                found.append(sum(vectors.values()))
            return usual(node, parameters, micro, *more)

        monkeypatch.setattr(Node, "forward", forward)
        work = {"parameters": 64_000, "layers": 2, "batch_size": 8}
        split = {"micro_batches": micro_batches}
        lockstep.simulate(
            case(name, 4, units=2, workload=work, parallelism=split, stop={"steps": 1},
                 cluster__workers_per_host=2)
        )  # fmt: skip
        monkeypatch.undo()
        return max(found)

    assert there(8) <= there(4)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "workers", "more"),
    drawn(
        [
            ("fsdp", 3, {"units": 3, "optimizer": "adam"}),
            ("fsdp", 2, {"units": 5, "prefetch": 2, "reshard": False, "parallelism": {"micro_batches": 2}}),
            ("fsdp", 4, {"zero": 1, "parallelism": {"pipeline": 2}}),
            ("hsdp", 4, {"units": 2, "group_size": 2, "prefetch": 0}),
            ("hsdp", 4, {"zero": 2, "buckets": 2, "cluster__workers_per_host": 2}),
        ],
        one_in=2,
        family=lambda each: each[0],
    ),
)
def test_real_processes_end_with_the_simulators_bits(name: str, workers: int, more: Any) -> None:
    simulated, measured = (engine(case(name, workers, **more)) for engine in ENGINES.values())
    assert np.array_equal(simulated.parameters, measured.parameters)
    assert measured.metrics["bytes_sent"] == simulated.metrics["bytes_sent"]
    assert measured.metrics["samples"] == simulated.metrics["samples"]


# ------------------------------------------------------------------ the whole vector, and how runs end


def digits(**changes: Any) -> Scenario:
    work = {"dataset": "digits", "model": "mlp", "batch_size": 32}
    return case("fsdp", 3, recompute=False, units=2, **{"workload": work, **changes})


ENDS: list[dict[str, Any]] = [{"updates": 5}, {"steps": 5}, {"target_accuracy": 0.6, "steps": 60}]


@pytest.mark.parametrize("stop", ENDS, ids=str)
def test_runs_end_with_all_parameters_of_one_version(stop: dict[str, Any]) -> None:
    check_end(lockstep.simulate(digits(stop=stop)), stop)


@pytest.mark.real
@pytest.mark.parametrize("stop", ENDS, ids=str)
def test_real_runs_end_so_too(stop: dict[str, Any]) -> None:
    check_end(lockstep.run(digits(stop=stop)), stop)


def check_end(result: Result, stop: dict[str, Any]) -> None:
    """What is evaluated are the parameters that as many steps of all-reduce lead to."""
    made = result.metrics["updates"]
    assert made == 5 or "target_accuracy" in stop
    ring = lockstep.simulate(
        case("all-reduce", 3, workload=digits().workload.model_dump(exclude_unset=True), stop={"steps": made})
    )
    assert result.parameters == pytest.approx(ring.parameters, rel=1e-5, abs=1e-6)
    assert result.metrics["samples"] >= 3 * 32 * made
    if "target_accuracy" in stop:
        assert result.metrics["accuracy"] >= 0.6 - 0.05  # a step later
        assert made < 60


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_shares_are_each_element_once(n: int) -> None:
    units = [slice(0, 5), slice(5, 5), slice(5, 6), slice(6, 20)]
    shares = sharded(range(n), units)
    parts = [part for place in range(n) for part in shares.owned(place)]
    assert sorted(i for part in parts for i in range(part.start, part.stop)) == list(range(20))
    whole = np.arange(20)
    own = [np.concatenate([whole[part] for part in shares.owned(place)]) for place in range(n)]
    assert np.array_equal(shares.owners(range(n)).together(own, np.concatenate), whole)


def test_stages_and_shares_go_together() -> None:
    """Owners of shares of each stage's slice: the whole is in the order of a model that is not split."""
    split = {"parallelism": {"pipeline": 2, "micro_batches": 2}}
    ring = lockstep.simulate(case("all-reduce", 4, **split))
    found = lockstep.simulate(case("fsdp", 4, zero=2, buckets=3, **split))
    assert np.array_equal(found.parameters, ring.parameters)
    assert found.metrics["samples"] == ring.metrics["samples"]


# ------------------------------------------------------------------ groups


def test_a_group_is_a_host_if_nobody_says() -> None:
    assert groups([0, 0, 1, 1, 2, 2], None) == [[0, 1], [2, 3], [4, 5]]
    assert groups([0, 1, 0, 1], None) == [[0, 2], [1, 3]]
    assert groups([0] * 6, 3) == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(StrategyError, match="different numbers of these workers \\(4, 2\\)"):
        groups([0, 0, 0, 0, 1, 1], None)


def test_only_shares_travel_between_hosts() -> None:
    """2(n/k − 1)/(n/k)·M/k a worker, all else inside the hosts."""
    config = case(
        "hsdp", 6, recompute=False, workload={"parameters": 6000}, cluster__workers_per_host=3, units=2
    )
    records = lockstep.simulate(config).records
    messages = records[records["event"] == "message"]
    between = messages[messages["node"] // 3 != messages["peer"] // 3]
    assert set(between["kind"]) == {"ring"}
    assert between["nbytes"].sum() == 6 * 4 * (2 * 1 / 2 * 24_000 / 3)
    assert set(messages["kind"]) == {"ring", "all-gather", "reduce-scatter"}


# ------------------------------------------------------------------ what is refused, what means nothing


@pytest.mark.parametrize(
    ("config", "key", "says"),
    [
        (case("fsdp", units=9), "strategy.units", "must be at most 5, as many as there are layers, not 9"),
        (case("fsdp", 4, parallelism={"pipeline": 2}), "parallelism.pipeline", "must be 1 with fsdp"),
        (case("fsdp", parallelism={"chunks": 2}), "parallelism.chunks", "must be 1 with fsdp"),
        (
            case("hsdp", 6, group_size=4),
            "strategy.group_size",
            "must divide the 6 workers: 1, 2, 3 or 6; not 4",
        ),
        (case("hsdp", 6, cluster__workers_per_host=4), "strategy.group_size", "must be given: hosts have"),
        (case("fsdp", zero=4), "strategy.zero", "4 is not a whole number ≥ 1 and ≤ 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(config: Scenario, key: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says.replace("?", "\\?")) as caught:
        Plan.of(config)
    assert caught.value.key == key


def test_more_units_are_what_would_fit() -> None:
    """Of a million parameters: a share of 0.5 MB each of parameters and gradients, and four units in full."""
    work = {"parameters": 10**6, "layers": 16}
    config = scenario(
        cluster__workers=8, cluster__memory="4 MB", workload=work, strategy={"name": "fsdp", "units": 4}
    )
    with pytest.raises(ScenarioError, match=r"it would fit with strategy\.units: 8$"):
        lockstep.check(config)
    fits = {"name": "fsdp", "units": 8}
    assert lockstep.check(config.model_copy(update={"strategy": config.strategy.model_validate(fits)}))


@pytest.mark.parametrize(
    ("given", "of"),
    [
        ({"zero": 2, "units": 4}, "units"),
        ({"zero": 1, "prefetch": 2}, "prefetch"),
        ({"zero": 1, "reshard": False}, "reshard"),
        ({"buckets": 4}, "buckets"),
        ({"codec": "fp16"}, "codec"),
    ],
)
def test_what_means_nothing_is_said(given: dict[str, Any], of: str) -> None:
    (warning,) = Plan.of(case("fsdp", **given)).warnings
    assert of in warning
