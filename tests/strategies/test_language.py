"""The members of a node that the strategies so far have no need of, and mistakes in a strategy."""

from typing import Any

import pytest

import lockstep
from lockstep.job.plan import Plan
from lockstep.simulator.engine import Simulation
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.evenly import Even
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy, StrategyError, find, unused
from lockstep.strategies.bounds import Bound, Count, Momentum, problem
from tests.support.scenarios import scenario


async def echoing(node: Node) -> None:
    """Worker 0 asks, a second activity of worker 1 answers while its first one sleeps."""
    other = node.workers[1 - node.index]

    async def answer() -> None:
        question = await node.receive("question")
        await node.send(question.sender, "answer", question.body, version=7, batches=2)

    if node.index == 1:
        node.spawn(answer())
        await node.sleep(0.2)
        return
    await node.sleep(0.05)
    begun = node.now
    node.send(other, "question", node.initial_parameters()[10:14])
    reply = await node.receive("answer", other)
    assert (reply.kind, reply.sender, reply.version, reply.batches) == ("answer", other, 7, 2)
    assert len(reply.body) == 4
    assert node.now - begun < 0.1
    doubled = await node.apply(lambda: reply.body + reply.body, nbytes=32)
    await node.updated(1, doubled, [Contribution(node.rank, 0, 1)])


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch):
    def register(program, **more) -> None:
        monkeypatch.setitem(STRATEGIES, "under-test", Strategy(program, **more))

    return register


def test_a_second_activity_in_virtual_time(registered) -> None:
    registered(echoing)
    run = lockstep.simulate(scenario(cluster__workers=2, strategy="under-test"))
    assert run.metrics["updates"] == 0  # worker 1 made none
    assert run.records["kind"].eq("answer").sum() == 1


def test_nodes_that_wait_for_each_other_for_ever_are_named(registered) -> None:
    async def deaf(node: Node) -> None:
        await node.receive("word", node.workers[0])

    registered(deaf)
    with pytest.raises(SimulationError, match=r"rank 0 waits for word from 0; rank 1 waits"):
        lockstep.simulate(scenario(cluster__workers=2, strategy="under-test"))


def test_an_error_in_a_strategy_has_its_traceback(registered) -> None:
    async def wrong(node: Node) -> None:
        await node.sleep(1)
        raise LookupError("the strategy's own")

    registered(wrong)
    with pytest.raises(SimulationError, match=r"worker 0 \(rank 0\) failed: LookupError: .*own") as caught:
        lockstep.simulate(scenario(strategy="under-test"))
    assert "in wrong" in caught.value.details


def test_ctrl_c_is_nobody_s_failure(registered) -> None:
    async def interrupted(node: Node) -> None:
        await node.sleep(1)
        raise KeyboardInterrupt

    registered(interrupted)
    with pytest.raises(KeyboardInterrupt):
        lockstep.simulate(scenario(strategy="under-test"))


def test_a_link_is_never_above_its_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    too_fast = lambda paths, capacity: {flow: (1e12, path[0]) for flow, path in paths.items()}  # noqa: E731
    monkeypatch.setattr("lockstep.simulator.solving.max_min", too_fast)
    monkeypatch.setattr(Even, "solve", lambda links, order: None)
    with pytest.raises(SimulationError, match="carries more than its capacity"):
        lockstep.simulate(scenario(cluster__network={"bandwidth": "1 MB/s"}))


def test_a_message_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(Plan.of(scenario()))
    simulation.network.bytes_sent = 1
    with pytest.raises(SimulationError, match="never arrived"):
        simulation.run()


def test_time_that_stands_still_is_noticed() -> None:
    nothing = {"time": {"distribution": "constant", "value": "0 s"}}
    with pytest.raises(SimulationError, match="virtual time stands still at 0 s"):
        lockstep.simulate(scenario(cluster__compute=nothing, stop={"time": "1 s"}))
    assert (
        lockstep.simulate(scenario(cluster__compute=nothing, stop={"steps": 3000})).metrics["updates"]
        == 12_000
    )


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        (0, Count, "0 is not a whole number ≥ 1"),
        (2.0, Count, "2.0 is not a whole number ≥ 1"),
        (True, Count, "True is not a whole number ≥ 1"),
        (1.0, Momentum, "1.0 is not a number ≥ 0 and < 1"),
        ("fast", Momentum, "'fast' is not a number ≥ 0 and < 1"),
        (float("nan"), Momentum, "nan is not a number ≥ 0 and < 1"),
        (None, Count, "None is not a whole number ≥ 1"),
    ],
)
def test_values_out_of_bounds(value, annotation, message: str) -> None:
    assert problem(value, annotation) == message


def test_values_within_bounds() -> None:
    assert problem(1, Count) is None
    assert problem(0, Momentum) is None
    assert Bound(gt=0) != Bound(ge=0)


def test_strategies_are_found_by_name_and_their_parameters_checked() -> None:
    assert find("downpour", {"communication_window": 3}) is STRATEGIES["downpour"]
    with pytest.raises(StrategyError, match=r"did you mean 'downpour'\?"):
        find("downpoor", {})
    with pytest.raises(
        StrategyError, match=r"strategy.window: unknown parameter of downpour .*communication_window"
    ):
        find("downpour", {"window": 3})
    with pytest.raises(StrategyError, match=r"'tree' is not one of ring, .*, native"):
        find("all-reduce", {"algorithm": "tree"})


def test_a_parameter_of_another_strategy_is_ignored_aloud() -> None:
    find("synchronous", {"communication_window": 3})
    assert unused(STRATEGIES["synchronous"], "synchronous", {"communication_window": 3, "momentum": 0}) == [
        "strategy.communication_window means nothing to synchronous: ignored"
    ]
    with pytest.raises(StrategyError, match="0 is not a whole number"):
        find("synchronous", {"communication_window": 0})


@pytest.mark.parametrize(
    ("name", "values", "warned"),
    [
        ("agn", {"server_learning_rate": 0.1}, {"server_learning_rate": "server_optimizer is sgd, "}),
        ("agn", {"server_learning_rate": 0.1, "server_optimizer": "sgd"}, {}),
        (
            "agn",
            {"server_momentum": 0.5, "server_optimizer": "adagrad"},
            {"server_momentum": "or adam: ignored"},
        ),
        ("synchronous", {"momentum": 0.9, "optimizer": "rmsprop"}, {"momentum": "optimizer is sgd, "}),
        ("synchronous", {"decay_steps": 9}, {"decay_steps": "decay is linear, cosine, step or inverse-sqrt"}),
        ("synchronous", {"decay_steps": 9, "decay": "step"}, {}),
        (
            "ssp",
            {"codec_ratio": 0.1, "codec": "1-bit"},
            {"codec_ratio": "codec is top-k or random-k, or answer_c"},
        ),
        ("ssp", {"codec_ratio": 0.1, "answer_codec": "top-k"}, {}),
        ("all-reduce", {"error_feedback": False}, {"error_feedback": "codec is fp16, bf16, "}),
        (
            "all-reduce",
            {"algorithm": "binomial", "codec": "int8"},
            {"algorithm": "codec is none, fp16 or bf16"},
        ),
        ("all-reduce", {"algorithm": "binomial", "codec": "fp16"}, {}),
        ("downpour", {"communication_window": 4, "push_period": 2}, {}),
        (
            "downpour",
            {"communication_window": 4, "push_period": 2, "fetch_period": 3},
            {"communication_window": "push_period is not given, or fetch_period is not given"},
        ),
        ("eamsgd", {"momentum": 0.5, "optimizer": "adagrad"}, {"optimizer": "means nothing to eamsgd"}),
    ],
)
def test_a_parameter_without_what_it_belongs_to_is_ignored_aloud(
    name: str, values: dict[str, Any], warned: dict[str, str]
) -> None:
    warnings = unused(find(name, values), name, values)
    assert len(warnings) == len(warned)
    for warning, (key, words) in zip(warnings, warned.items(), strict=True):
        assert warning.startswith(f"strategy.{key} means nothing ")
        assert words in warning


def test_what_a_parameter_belongs_to_is_there() -> None:
    """Each names a parameter, and values that it may have."""
    for strategy in STRATEGIES.values():
        for key, marks in strategy.belongings.items():
            for mark in marks:
                assert mark.key != key
                for value in mark.values:
                    assert problem(value, strategy.parameters[mark.key].annotation) is None


@pytest.mark.parametrize("name", ["k-sync", "k-batch-sync", "k-async", "k-batch-async"])
@pytest.mark.parametrize(("workers", "most"), [(1, 1), (2, 2), (4, 3), (6, 5), (8, 6)])
def test_k_is_three_quarters_of_the_workers_if_none_is_given(name: str, workers: int, most: int) -> None:
    time = {"distribution": "exponential", "mean": "10 ms"}
    runs = [
        lockstep.simulate(
            scenario(
                cluster__workers=workers, cluster__compute={"time": time},
                strategy=strategy, stop={"steps": 12},
            )
        ).metrics
        for strategy in ({"name": name}, {"name": name, "k": most}, {"name": name, "k": None})
    ]  # fmt: skip
    for run in runs[1:]:
        assert run["duration_s"] == runs[0]["duration_s"]
        assert run["updates"] == runs[0]["updates"]


def test_k_sync_by_default_is_not_slower_than_waiting_for_all() -> None:
    """With k = 1 seven of eight gradients are thrown away: an efficiency below that of waiting for all."""
    time = {"distribution": "exponential", "mean": "10 ms"}
    efficiency = {
        name: lockstep.simulate(
            scenario(
                cluster__workers=8, cluster__compute={"time": time}, strategy={"name": name},
                stop={"updates": 200},
            )
        ).metrics["efficiency"]
        for name in ("synchronous", "k-sync")
    }  # fmt: skip
    assert efficiency["k-sync"] > efficiency["synchronous"]


def test_defaults_make_a_name_alone_a_strategy() -> None:
    for name, strategy in STRATEGIES.items():
        assert find(name, {}) is strategy
        for parameter in strategy.parameters.values():
            assert problem(parameter.default, parameter.annotation) is None


def test_a_run_of_updates_that_never_come_does_not_stand_still_for_ever() -> None:
    """Its worker pushes one gradient after another in no time, while the first update takes some."""
    config = scenario(
        cluster__workers=1, cluster__compute={"time": {"distribution": "constant", "value": "0 s"}},
        cluster__apply_overhead="1 ms",
        strategy={"name": "k-batch-sync"}, stop={"updates": 3},
    )  # fmt: skip
    with pytest.raises(SimulationError, match="virtual time stands still at 0 s"):
        lockstep.simulate(config)


def test_updates_that_take_no_time_do_end_a_run() -> None:
    config = scenario(
        cluster__workers=1, cluster__compute={"time": {"distribution": "constant", "value": "0 s"}},
        stop={"updates": 3000},
    )  # fmt: skip
    assert lockstep.simulate(config).metrics["updates"] == 3000


@pytest.mark.parametrize("servers", [1, {"count": 2, "hierarchy": {"groups": 2}}])
def test_model_averaging_has_no_chunks(servers, engine) -> None:
    config = scenario(
        cluster__servers=servers, strategy={"name": "model-averaging", "averaging_period": 2, "chunks": 3}
    )
    result = engine(config)
    assert result.metrics["samples"] == 4 * 5 * 32
    assert "strategy.chunks means nothing to model-averaging: ignored" in result.metrics["warnings"]


def test_nodes_share_what_all_of_them_know() -> None:
    """A copy for each is n² numbers: 80 GB for 100,000 workers."""
    simulation = Simulation(Plan.of(scenario()))
    simulation.run()
    one, other = simulation.nodes[0], simulation.nodes[1]
    assert one.hosts is other.hosts
    assert one.shards is other.shards
