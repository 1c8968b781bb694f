"""A real run, repeated in the simulator: the same updates, and the same bits in the end."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import lockstep
from lockstep import Result, Scenario
from lockstep.executor.inbox import Arrived
from lockstep.job.incarnation import FIRST
from lockstep.simulator.replayed_port import Mail, ReplayedPort, Span
from lockstep.strategies import STRATEGIES, Contribution, Message, Node, Strategy, Vector
from lockstep.strategies.owners import OneModelEach
from tests.support.activities import PROGRAMS, UNDER_TEST, main_that_knows_them
from tests.support.nightly import drawn
from tests.support.replays import learning, updates
from tests.support.scenarios import scenario

pytestmark = pytest.mark.real

DIGITS = {"dataset": "digits", "model": "mlp", "batch_size": 16}

CASES: dict[str, Callable[[], Scenario]] = {
    "asynchronous, epochs": lambda: learning("asynchronous", workload=DIGITS, stop={"epochs": 1}),
    "asynchronous, measured": lambda: learning(
        "asynchronous", workload=DIGITS, cluster__compute="measured", cluster__network={},
        stop={"epochs": 9, "target_accuracy": 0.2},
    ),
    "asynchronous below relays, updates": lambda: learning(
        "asynchronous", cluster__servers={"count": 2, "hierarchy": {"groups": 2}}, stop={"updates": 12}
    ),
    "synchronous in chunks, time": lambda: learning(
        {"name": "synchronous", "chunks": 2}, stop={"time": "0.1 s"}
    ),
    "ssp": lambda: learning({"name": "ssp", "codec": "1-bit", "answer_codec": "int8"}),
    "ssp-blocking": lambda: learning({"name": "ssp-blocking", "correction": "dc-asgd", "codec": "1-bit"}),
    "backup-workers": lambda: learning("backup-workers", cluster__servers=1),
    "k-sync": lambda: learning({"name": "k-sync", "k": 2}),
    "k-batch-sync, updates": lambda: learning({"name": "k-batch-sync", "k": 3}, stop={"updates": 6}),
    "bounded-delay": lambda: learning({"name": "bounded-delay", "bound": 2}),
    "fedavg": lambda: learning({"name": "fedavg", "participation": 0.5}, cluster__servers=1),
    "downpour": lambda: learning({"name": "downpour", "communication_window": 2, "codec": "random-k"}),
    "adacomm": lambda: learning({"name": "adacomm", "averaging_period": 4, "interval_s": 0.004}),
    "all-reduce, time": lambda: learning({"name": "all-reduce", "buckets": 3}, stop={"time": "0.1 s"}),
    "native all-reduce": lambda: learning(
        {"name": "all-reduce", "algorithm": "native"}, cluster__workers=2
    ),
    "p3": lambda: learning({"name": "p3", "units": 2, "slice_size": 900, "codec": "1-bit"}, workload=DIGITS),
    "pipe-sgd": lambda: learning({"name": "pipe-sgd", "delay": 2}),
    "osgp": lambda: learning({"name": "osgp", "overlap": 2}),
    "streaming-diloco": lambda: learning(
        {"name": "streaming-diloco", "averaging_period": 3, "fragments": 2, "codec": "e3m0"}
    ),
    "ad-psgd": lambda: learning({"name": "ad-psgd", "graph": "complete"}, stop={"steps": 20}),
    "gossip, updates": lambda: learning({"name": "gossip", "probability": 0.5}, stop={"updates": 7}),
    "nothing learned": lambda: learning("asynchronous", workload={"parameters": 100}),
}  # fmt: skip


def check_replay(measured: Result, folder: Path) -> None:
    measured.save(folder)
    replayed = lockstep.replay(folder)
    assert replayed.engine == "simulator"
    assert updates(replayed) == updates(measured)
    for key in ("parameters_sha256", "loss", "accuracy", "dropped", "updates", "staleness"):
        assert replayed.metrics[key] == measured.metrics[key], key
    gradients = [(result.records["event"] == "gradient").sum() for result in (measured, replayed)]
    assert gradients[0] == gradients[1]


@pytest.mark.parametrize("case", drawn(CASES, one_in=4))
def test_the_same_bits(case: str, tmp_path: Path) -> None:
    check_replay(lockstep.run(CASES[case]()), tmp_path)


@pytest.mark.parametrize("strategy", ["asynchronous", {"name": "fsdp", "units": 2}])
def test_of_parameters_that_all_read_where_they_were_made(strategy: Any, tmp_path: Path) -> None:
    """218 kB, which are not copied: who made them goes on to the next meanwhile."""
    workload = {"dataset": "digits", "model": "cnn", "batch_size": 4}
    check_replay(lockstep.run(learning(strategy, workload=workload, stop={"steps": 15})), tmp_path)


async def at_once(node: Node) -> None:
    """Three activities change what they share; two of them wait for the same messages."""
    state, version = node.initial_parameters(), 0

    async def answering(number: int) -> None:
        nonlocal state

        def shrunk() -> Vector:
            return 0.8 * state + number

        while True:
            word = await node.receive("word", node.workers[0])
            state = 0.9 * state + (number + 0.1 * word.version)
            await node.sleep(1e-4 * number)
            state = await node.apply(shrunk, state.nbytes)

    node.spawn(answering(1))
    node.spawn(answering(2))
    while await node.next_batch_available():
        gradient = await node.gradient(state)
        state, version = state - 0.1 * gradient, version + 1
        if node.index == 0:
            for worker in (*node.workers, *node.workers):
                node.send(worker, "word", state[:1], version=version)
        await node.updated(version, state, [Contribution(node.rank, 0, 1)])


async def at_any_moment(node: Node) -> None:
    """One activity reads what depends on the moment, while another computes in every way there is."""
    state, version = node.initial_parameters(), 0
    half = slice(0, len(state) // 2), slice(len(state) // 2, len(state))
    others = [worker for worker in node.workers if worker != node.rank]

    async def beside() -> None:
        nonlocal state
        try:
            while True:
                word = await node.receive("word")
                state = 0.9 * state + 1e-3 * (node.step + node.now + (node.loss if node.step > 1 else 0.0))
                await node.send(word.sender, "back", state[:3], version=version)
                state = state + (1e-3 if node.arrived("word") else 0.0)
        finally:
            node.send(node.rank, "last")

    node.spawn(beside())
    while await node.next_batch_available():
        for worker in node.workers:
            node.send(worker, "word", version=version)
        if node.rng.random() < 0.5:
            node.send(node.rng.choice(others), "stop")
        if version % 3 == 0:
            gradient = await node.gradient_unless(state, "stop")
        elif version % 3 == 1:
            ready = node.backward(state, half)
            first = state
            gradient = node.concatenate([await part + 0.01 * (state - first)[:1] for part in ready])
        else:
            gradient = await node.gradient(state)
        while node.arrived("stop"):
            await node.receive("stop")
        while node.arrived("back"):
            state = 0.99 * state + 1e-3 * (await node.receive("back")).version
        version += 1
        state = state if gradient is None else state - 0.1 * gradient
        await node.updated(version, state, [Contribution(node.rank, 0, 1)])


OWN = {program.__name__: Strategy(program, owners=OneModelEach) for program in (at_once, at_any_moment)}


def main_that_knows_it(*arguments: Any) -> None:
    STRATEGIES.update(OWN)
    main_that_knows_them(*arguments)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies of the tests, also in the processes of a run."""
    monkeypatch.setattr("lockstep.executor.process.main", main_that_knows_it)
    for name, strategy in {**UNDER_TEST, **OWN}.items():
        monkeypatch.setitem(STRATEGIES, name, strategy)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("program", [p.__name__ for p in PROGRAMS if "still" not in p.__name__][:-1])
def test_second_activities(program: str, tmp_path: Path) -> None:
    check_replay(lockstep.run(scenario(strategy=program, cluster__workers=3)), tmp_path)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("program", list(OWN))
@pytest.mark.parametrize("stop", [{"steps": 30}, {"time": "0.1 s"}, {"updates": 9}])
def test_activities_that_share_what_they_change(program: str, stop: Any, tmp_path: Path) -> None:
    check_replay(lockstep.run(learning(program, stop=stop)), tmp_path)


def test_shared_cores_on_which_gradients_are_given_up(tmp_path: Path) -> None:
    """In the replay, computing takes other times than in the run: what was given up may be done, or go on."""
    crowded = {"cluster__cores_per_host": 2, "cluster__workers_per_host": 4, "cluster__servers": 1}
    check_replay(lockstep.run(learning("backup-workers", **crowded)), tmp_path)


def test_shared_cores_on_which_updates_are_charged(tmp_path: Path) -> None:
    """The real run took its time for them, without waiting."""
    host = {"cluster__cores_per_host": 1, "cluster__workers_per_host": 4}
    machine = {"cluster__network": {"processing": {"cores": 1, "update": "1 ms"}}}
    for crowded in (host, machine):
        run = lockstep.run(learning("local-sgd", cluster__apply_overhead="1 ms", **crowded))
        check_replay(run, tmp_path)


def test_a_message_that_came_after_the_end_is_not_taken_in() -> None:
    """The log does not know it; of those that it does not know, only a native collective's rings are."""
    taken: list[str] = []
    stub: Any = SimpleNamespace(clock=None)
    port = ReplayedPort(stub, "server 0", Span(FIRST), Mail())
    port.take_in = lambda arrival: taken.append(arrival.message.kind)
    for kind in ("push", "ring"):
        port.keep(0, Arrived(Message(kind, 1, None), 0.0, 0))
    assert taken == ["ring"]
