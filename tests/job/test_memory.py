"""The high-water mark of each device: by hand, as simulated, and as real tensors have it."""

from typing import Any

import pytest

import lockstep
from lockstep import Scenario
from lockstep.job import stages
from lockstep.job.memory import HighWater
from lockstep.job.plan import Plan
from lockstep.scenarios import override
from lockstep.strategies import STRATEGIES
from lockstep.strategies.optimizers import Age, optimizer
from lockstep.workloads import sizes
from lockstep.workloads.layers import kept, layers
from tests.support.nightly import drawn
from tests.support.scenarios import scenario

N = 1_000_000


def cut(workers: int, strategy: Any = "all-reduce", workload: Any = None, **split: Any) -> Scenario:
    """8 samples of 1 MB of activations each, in as many micro-batches, and N parameters in all."""
    split = {"pipeline": workers, "micro_batches": 8, **split}
    sized = {"parameters": N, "batch_size": 8, "activation": "8 MB", **(workload or {})}
    changes: dict[str, Any] = {"cluster__workers": workers, "parallelism": split, "workload": sized}
    return scenario(**changes, strategy=strategy, stop={"steps": 3 * workers})


@pytest.mark.parametrize(
    ("strategy", "split", "expected"),
    [
        ("all-reduce", {}, [4, 3, 2, 1]),
        ("all-reduce", {"order": "gpipe"}, [8, 8, 8, 8]),
        ("all-reduce", {"order": "zero-bubble"}, [4, 4, 4, 4]),
        ("all-reduce", {"order": "gpipe", "micro_batches": 1}, [8, 8, 8, 8]),  # each all of the mini-batch
        ("pipedream", {"micro_batches": 1}, [32, 24, 16, 8]),
        ("pipedream-2bw", {}, [4, 3, 2, 1]),
        # the first has no inputs to keep; one micro-batch is there in full
        ("all-reduce", {"order": "gpipe", "recompute": True}, [1, 8, 8, 8]),
    ],
)
def test_activations_follow_from_the_order(strategy: str, split: Any, expected: list[int]) -> None:
    plan = Plan.of(cut(4, strategy, **split))
    assert [mark.activations for mark in plan.memory] == [each * 10**6 for each in expected]


def test_recomputing_keeps_inputs_and_one_micro_batch_in_full() -> None:
    """Two layers a stage: 1 MB of inputs each micro-batch, 2 MB in full; with ZB-H1 in full for longer."""
    by = {"workload": {"layers": 8}, "recompute": True}
    assert [mark.activations / 1e6 for mark in Plan.of(cut(4, order="gpipe", **by)).memory] == [2, 9, 9, 9]
    assert [mark.activations / 1e6 for mark in Plan.of(cut(4, **by)).memory] == [2, 4, 3, 2]
    late = Plan.of(cut(4, order="zero-bubble", **by)).memory
    assert [mark.activations / 1e6 for mark in late] == [2, 6, 7, 8]


@pytest.mark.parametrize(
    ("name", "moments"),
    [("sgd", 0), ("momentum", 1), ("nesterov", 1), ("adagrad", 1), ("rmsprop", 1), ("adam", 2), ("adamw", 2)],
)
def test_an_optimizer_says_what_it_keeps(name: Any, moments: int) -> None:
    its = optimizer(optimizer=name)
    _, state = its.step(1.0, its.initial, 1.0)
    assert its.moments == moments == sum(not isinstance(part, Age) for part in state)
    local = Plan.of(cut(2, {"name": "all-reduce", "optimizer": name})).memory[0]
    assert local.optimizer == moments * local.parameters == moments * N // 2 * 4
    served = Plan.of(cut(2, {"name": "synchronous", "optimizer": name})).memory[0]
    assert served.optimizer == 0  # the servers have it


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_has_a_mark(name: str) -> None:
    plan = Plan.of(scenario(strategy=name, cluster__workers=4, workload={"parameters": N}))
    (mark,) = plan.memory
    if STRATEGIES[name].shares is None:
        assert mark.parameters == mark.gradient == 4 * N
    assert mark.others == 4 * N * STRATEGIES[name].kept({})
    assert mark.buffers == mark.activations == 0
    assert STRATEGIES["downpour"].keeps == 1
    assert STRATEGIES["all-reduce"].keeps == STRATEGIES["synchronous"].keeps == 0


def test_pipedream_keeps_a_version_for_each_mini_batch_under_way() -> None:
    stashed = [mark.stashed for mark in Plan.of(cut(4, "pipedream", micro_batches=1)).memory]
    assert stashed == [3 * N, 2 * N, N, 0]  # a slice is N bytes
    assert [mark.stashed for mark in Plan.of(cut(4, "pipedream-2bw")).memory] == [N] * 4


def test_mixed_precision_takes_16_bytes_a_parameter_with_adam() -> None:
    adam = {"name": "all-reduce", "optimizer": "adam"}
    mixed = {"parameters": N, "mixed": True}
    plan = Plan.of(scenario(workload=mixed, strategy=adam))
    assert plan.memory == [HighWater(2 * N, 2 * N, 12 * N, 0, 0, 0, 0, 0)]
    assert plan.sizes.nbytes == 2 * N  # of a message, too
    assert sum(Plan.of(scenario(workload=mixed, strategy="all-reduce")).memory[0]) == 8 * N
    assert sum(Plan.of(scenario(workload={"parameters": N}, strategy="all-reduce")).memory[0]) == 8 * N
    with pytest.raises(ValueError, match="float32, bfloat16 or float16"):
        scenario(workload={**mixed, "dtype": "float64"})


def test_servers_may_have_their_vectors_on_workers_devices() -> None:
    """Those of a host on its devices in turn: the first parameters, four of a shard, two for each child."""
    servers = {"count": 4, "colocated": True, "device": "auto"}
    given: dict[str, Any] = {"workload": {"parameters": N}, "strategy": "synchronous"}
    plan = Plan.of(scenario(cluster__servers=servers, cluster__workers_per_host=2, **given))
    assert plan.served_on == {0: [4], 1: [6], 2: [5], 3: [7]}
    assert [plan.high_water(worker).servers for worker in plan.workers] == [4 * N + (4 + 2 * 4) * N] * 4
    assert plan.high_water(0).total == plan.memory[0].total + 16 * N
    result = lockstep.simulate(plan.scenario)
    assert result.metrics["memory_bytes"] == 24 * N
    for elsewhere in ({"device": "cpu"}, {"colocated": False}):
        assert not Plan.of(scenario(cluster__servers={**servers, **elsewhere}, **given)).served_on
    at_home = lockstep.simulate(
        scenario(cluster__servers={**servers, "device": "cpu"}, cluster__workers_per_host=2, **given)
    )
    assert at_home.records.equals(result.records)


@pytest.mark.parametrize(
    ("zero", "shared", "in_full"),  # of a million parameters' bytes: what is divided; two units of six
    [(1, 12, 0), (2, 14, 2 / 6), (3, 16, 2 * 4 / 6)],
)
def test_workers_share_out_state_gradients_and_parameters(zero: int, shared: int, in_full: float) -> None:
    """Rajbhandari et al. 2020, §3.1 and §5."""
    work = {"parameters": 6 * N, "mixed": True, "batch_size": 8, "layers": 6, "activation": "8 MB"}
    strategy = {"name": "fsdp", "optimizer": "adam", "zero": zero, "units" if zero == 3 else "buckets": 6}
    (mark,) = Plan.of(scenario(cluster__workers=8, workload=work, strategy=strategy)).memory
    assert mark.total - mark.activations == pytest.approx(6 * N * (16 - shared + shared / 8 + in_full))
    assert mark.activations == 6 * 8 * 10**6  # of the whole mini-batch, by each layer
    split = {"parallelism": {"micro_batches": 4}}
    (parts,) = Plan.of(scenario(cluster__workers=8, workload=work, strategy=strategy, **split)).memory
    assert parts.activations == mark.activations / 4
    together = 6 * N * (2 - 2 / 6) if zero == 2 else 0  # a mini-batch's gradient is summed up first
    assert parts.in_full - mark.in_full == pytest.approx(together)


@pytest.mark.parametrize(("ahead", "units"), [(0, 2), (1, 4), (2, 6), (9, 7)])
def test_units_in_full(ahead: int, units: int) -> None:
    """Of six equal ones: parameters of those asked for, gradients of as many; in the end all, and one."""
    strategy = {"name": "fsdp", "units": 6, "prefetch": ahead}
    (mark,) = Plan.of(scenario(workload={"parameters": 6 * N}, strategy=strategy)).memory
    assert mark.in_full == units * 4 * N
    (kept,) = Plan.of(
        scenario(workload={"parameters": 6 * N}, strategy={**strategy, "reshard": False})
    ).memory
    assert kept.in_full == 7 * 4 * N


@pytest.mark.parametrize(
    "workload",
    [
        {"dataset": "digits", "model": "mlp"},
        {"dataset": "digits", "model": "cnn", "batch_size": 8},
        {"dataset": "cifar10", "model": "resnet18", "batch_size": 4},
        {"problem": "quadratic"},
        {"problem": "logistic", "density": 0.5},
        {"parameters": 1000, "layers": 3, "activation": "1 MB"},
    ],
)
def test_an_unsplit_model_keeps_what_its_layers_keep(workload: Any) -> None:
    its = scenario(workload=workload).workload
    whole = kept(layers(its)) * sizes(its).itemsize * its.batch_size
    assert sizes(its).kept == whole > 0
    result = lockstep.simulate(scenario(workload={**workload, "learning": False}, strategy="all-reduce"))
    assert result.metrics["memory_bytes"] == 2 * sizes(its).nbytes + whole


SPLIT = [
    ("mlp", 2, {"order": "1f1b"}),
    ("mlp", 2, {"order": "gpipe", "recompute": True}),
    ("cnn", 2, {"order": "interleaved", "chunks": 2}),
    ("cnn", 2, {"order": "zero-bubble", "recompute": True}),
    ("cnn", 3, {"order": "gpipe"}),
    ("cnn", 3, {"order": "1f1b", "recompute": True}),
    ("cnn", 4, {"order": "zero-bubble"}),
    ("cnn", 4, {"order": "interleaved"}),
    ("transformer", 3, {"order": "1f1b"}),
    ("transformer", 2, {"order": "interleaved", "chunks": 2, "recompute": True}),
]


def learning(model: str, workers: int, **split: Any) -> Scenario:
    text = {"layers": 3, "hidden": 16, "heads": 2, "sequence": 16, "dataset": "sentences"}
    data = {**(text if model == "transformer" else {"dataset": "digits"}), "model": model, "batch_size": 24}
    split = {"pipeline": workers, "micro_batches": 4, **split}
    changes: dict[str, Any] = {"cluster__workers": workers, "parallelism": split, "workload": data}
    return scenario(**changes, strategy="all-reduce", stop={"steps": 2})


@pytest.mark.parametrize(("model", "workers", "split"), SPLIT)
def test_the_simulator_records_what_the_plan_predicts(model: str, workers: int, split: Any) -> None:
    result = lockstep.simulate(learning(model, workers, **split))
    assert result.memory["total"].tolist() == [mark.total for mark in result.plan.memory]
    assert result.metrics["memory_bytes"] == result.memory["total"].max()


IN_UNITS = [(model, units, again) for model, units in (("mlp", 2), ("cnn", 4)) for again in (False, True)]


def in_units(model: str, units: int, recompute: bool) -> Scenario:
    config = learning(model, 1, micro_batches=2, recompute=recompute)
    strategy = config.strategy.model_validate({"name": "fsdp", "units": units})
    return override(config, "cluster.workers", 2).model_copy(update={"strategy": strategy})


@pytest.mark.parametrize(("model", "units", "recompute"), IN_UNITS)
def test_units_too(model: str, units: int, recompute: bool) -> None:
    result = lockstep.simulate(in_units(model, units, recompute))
    assert result.memory["total"].tolist() == [result.plan.memory[0].total] * 2


@pytest.mark.real
@pytest.mark.parametrize(("model", "units", "recompute"), IN_UNITS[1::2])
def test_units_of_real_tensors(model: str, units: int, recompute: bool) -> None:
    config = in_units(model, units, recompute)
    predicted, measured = lockstep.simulate(config).memory, lockstep.run(config).memory
    for part in ("activations", "in_full", "total"):
        assert measured[part].tolist() == pytest.approx(predicted[part].tolist(), rel=0.1), part


@pytest.mark.parametrize("strategy", ["pipedream", "pipedream-2bw"])
def test_without_a_flush_too(strategy: str) -> None:
    config = cut(4, strategy, micro_batches=1 if strategy == "pipedream" else 4)
    result = lockstep.simulate(config)
    assert result.memory["total"].tolist() == [mark.total for mark in result.plan.memory]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(("model", "workers", "split"), drawn(SPLIT, one_in=2, family=lambda case: case[0]))
def test_real_tensors_take_what_is_predicted(model: str, workers: int, split: Any) -> None:
    """Activations are of the bytes that autograd keeps; no part hides another's error."""
    config = learning(model, workers, **split)
    predicted, measured = lockstep.simulate(config).memory, lockstep.run(config).memory
    for part in ("parameters", "gradient", "activations", "buffers", "total"):
        assert measured[part].tolist() == pytest.approx(predicted[part].tolist(), rel=0.1), part


def test_layers_that_are_alike_are_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a model of many equal layers is cut into many stages, that takes long otherwise."""
    asked = 0
    usual = stages.high_water

    def counting(*given: Any) -> Any:
        of = usual(*given)

        def counted(stage: int, pieces: Any) -> HighWater:
            nonlocal asked
            asked += 1
            return of(stage, pieces)

        return counted

    monkeypatch.setattr(stages, "high_water", counting)
    plan = Plan.of(cut(8, workload={"layers": 32}, cut={"by": "memory"}))
    lengths, ends = 32, 4  # one end of the model, the other, both, none
    assert asked <= 8 * lengths * ends
    assert plan.pieces[0].length < plan.pieces[-1].length  # which has fewer micro-batches under way


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_ako_has_as_many_steps_as_partitions(partitions: int) -> None:
    """And a part of another's."""
    job = scenario(strategy={"name": "ako", "partitions": partitions}, workload={"parameters": N})
    (mark,) = Plan.of(job).memory
    assert mark.others == 4 * N * (partitions + 1)
