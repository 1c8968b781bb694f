"""A real run, repeated in the simulator: the same updates, and the same bits in the end."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep import Result, Scenario, ScenarioError
from lockstep.analysis.records import of
from lockstep.replaying import ReplayDiffers
from lockstep.simulator.errors import SimulationError
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy, Vector
from lockstep.strategies.owners import OneModelEach
from tests.support.activities import PROGRAMS, UNDER_TEST, main_that_knows_them
from tests.support.command_line import Lockstep
from tests.support.nightly import drawn
from tests.support.scenarios import scenario

pytestmark = pytest.mark.real

UPDATE = ["node", "version", "peer", "staleness", "batches"]
DIGITS = {"dataset": "digits", "model": "mlp", "batch_size": 16}


def learning(strategy: str | dict[str, Any], **changes: Any) -> Scenario:
    """A noisy problem: what comes of it depends on the order of the updates."""
    return scenario(
        **{
            "cluster__compute": {"time": {"distribution": "exponential", "mean": "3 ms"}},
            "cluster__network": {"bandwidth": "20 MB/s", "latency": "1 ms"},
            "cluster__servers": 2,
            "workload": {"problem": "logistic"},
            "stop": {"steps": 8},
            "strategy": strategy,
            **changes,
        }
    )


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
    "ad-psgd": lambda: learning({"name": "ad-psgd", "graph": "complete"}, stop={"steps": 20}),
    "gossip, updates": lambda: learning({"name": "gossip", "probability": 0.5}, stop={"updates": 7}),
    "nothing learned": lambda: learning("asynchronous", workload={"parameters": 100}),
}  # fmt: skip


def updates(result: Result) -> list[list[int]]:
    found = of(result.records, "update", UPDATE)
    return found.sort_values(UPDATE).to_numpy().tolist()


def check_replay(measured: Result, folder: Path) -> None:
    measured.save(folder)
    replayed = lockstep.replay(folder)
    assert replayed.engine == "simulator"
    assert updates(replayed) == updates(measured)
    for key in ("parameters_sha256", "loss", "accuracy", "dropped", "updates", "staleness"):
        assert replayed.metrics[key] == measured.metrics[key], key
    gradients = [(result.records["event"] == "gradient").sum() for result in (measured, replayed)]
    assert gradients[0] == gradients[1]


@pytest.mark.parametrize("case", drawn(CASES, one_in=2))
def test_the_same_bits(case: str, tmp_path: Path) -> None:
    check_replay(lockstep.run(CASES[case]()), tmp_path)


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


# --- what does not fit --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured() -> Result:
    return lockstep.run(learning("asynchronous", stop={"steps": 12}))


@pytest.fixture
def run(measured: Result, tmp_path: Path) -> Path:
    measured.save(tmp_path / "run")
    return tmp_path / "run"


def test_without_the_log_something_else_comes_of_it(measured: Result) -> None:
    predicted = lockstep.simulate(measured.scenario)
    assert updates(predicted) != updates(measured)
    assert predicted.metrics["parameters_sha256"] != measured.metrics["parameters_sha256"]


def edit(run: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    log = run / "interleaving.parquet"
    change(pd.read_parquet(log)).to_parquet(log, index=False)


def pushes(log: pd.DataFrame, server: int) -> pd.DataFrame:
    return log[(log["node"] == server) & (log["kind"] == "push")]


def swapped(log: pd.DataFrame) -> pd.DataFrame:
    """Two pushes, one after the other, of which the second could have come first: its worker was answered."""
    found = pushes(log, server=4)
    peers, number = found["peer"].tolist(), found["number"].tolist()
    place = next(i for i in range(5, len(found)) if number[i] > 1 and peers[i] not in peers[i - 3 : i])
    order, a, b = [*log.index], found.index[place - 1], found.index[place]
    order[a], order[b] = b, a
    return log.loc[order]


def another_message(log: pd.DataFrame) -> pd.DataFrame:
    log.loc[pushes(log, server=5).index[-1], "number"] += 1
    return log


def shorter(log: pd.DataFrame) -> pd.DataFrame:
    return log.drop(log.index[-9:])


def another_event(log: pd.DataFrame) -> pd.DataFrame:
    log.loc[log["word"].eq("compute").idxmax(), "word"] = "wait"
    return log


def one_more_question(log: pd.DataFrame) -> pd.DataFrame:
    place = log["word"].eq("message").idxmax()
    return pd.concat([log[:place], log[:1].assign(activity=-1, word="time", kind=""), log[place:]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            swapped,
            r"\(rank \d\), entry \d+ \(message .* number \d+ from rank \d\): its version is \d+, and was",
        ),
        (
            another_message,
            r"server 1 \(rank 5\), entry \d+ \(message push number 13 .*: no such message comes",
        ),
        (shorter, r"worker \d \(rank \d\), entry \d+ \(message parameters .* from rank 5\): no such message"),
        (another_event, r"worker 0 \(rank 0\), entry \d+ \(wait number 0\): here this event is a compute"),
        (one_more_question, r"worker 0 \(rank 0\), entry \d+ \(time\): the strategy does not ask for it"),
        (lambda log: log[log["node"] != 5], r"it is of 5 nodes, and the scenario has 6"),
    ],
)
def test_a_log_of_something_else(run: Path, change: Any, message: str) -> None:
    edit(run, change)
    with pytest.raises((SimulationError, ReplayDiffers), match=message):
        lockstep.replay(run)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: asynchronous", "name: asynchronous\n  learning_rate: 0.3", r"parameters are not; the first"),
        ("name: asynchronous", "name: synchronous", r"\(rank \d\), entry \d+ .*: the strategy"),
        ("workers: 4", "workers: 3", r"it is of 6 nodes, and the scenario has 5"),
    ],
)
def test_another_scenario(run: Path, old: str, new: str, message: str) -> None:
    text = (run / "scenario.yaml").read_text()
    assert text.count(old) == 1
    (run / "scenario.yaml").write_text(text.replace(old, new))
    with pytest.raises((SimulationError, ReplayDiffers), match=message):
        lockstep.replay(run)


def test_a_count_of_something_else(tmp_path: Path) -> None:
    lockstep.run(learning("asynchronous", stop={"updates": 6})).save(tmp_path)

    def asked_for_the_time(log: pd.DataFrame) -> pd.DataFrame:
        log.loc[log["word"].eq("count").idxmax(), ["word", "kind"]] = "time", ""
        return log

    edit(tmp_path, asked_for_the_time)
    with pytest.raises(
        SimulationError, match=r"\(rank [45]\), entry \d+ \(time .*: the strategy asks for a count"
    ):
        lockstep.replay(tmp_path)


def test_the_network_of_the_replay_is_free(run: Path) -> None:
    """When things happen is not the log's to say."""
    text = (run / "scenario.yaml").read_text()
    (run / "scenario.yaml").write_text(text.replace("latency: 0.001 s", "latency: 1 s"))
    assert text != (run / "scenario.yaml").read_text()
    assert lockstep.replay(run).metrics["duration_s"] > 10


def test_records_of_something_else(run: Path) -> None:
    records = pd.read_parquet(run / "records.parquet")
    last = records.index[records["event"] == "update"][-1]
    records.drop(last).to_parquet(run / "records.parquet", index=False)
    with pytest.raises(ReplayDiffers, match=r"(there it made|only here it made) update \d+ of rank"):
        lockstep.replay(run)


def before_ports_were_recorded(log: pd.DataFrame) -> pd.DataFrame:
    return log[:3].assign(word=["begin", "gradient", "receive"])


def with_word(word: str, kind: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda log: pd.concat([log, log[:1].assign(word=word, kind=kind)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: edit(run, before_ports_were_recorded), "its log is of an earlier version of lockstep"),
        (lambda run: edit(run, with_word("begin", "cuda:0 torch")), "this one was on cuda:0"),
        (
            lambda run: edit(run, with_word("all_reduce", "")),
            "the native all-reduce adds in an order of its own",
        ),
        (lambda run: edit(run, lambda log: log.drop(columns="peer")), "its files cannot be read .'peer'."),
        (lambda run: (run / "interleaving.parquet").write_text("?"), "its files cannot be read"),
        (lambda run: (run / "result.json").unlink(), "there is no result.json; give the --out of a"),
        (lambda run: (run / "scenario.yaml").write_text("name: x"), "x: 'cluster' is missing|cluster"),
    ],
)
def test_what_cannot_be_replayed(run: Path, change: Callable[[Path], Any], message: str) -> None:
    change(run)
    with pytest.raises(ScenarioError, match=message):
        lockstep.replay(run)


def test_shared_memory_cannot(run: Path) -> None:
    text = (run / "scenario.yaml").read_text()
    (run / "scenario.yaml").write_text(text.replace("name: asynchronous", "name: hogwild"))
    with pytest.raises(ScenarioError, match="hogwild cannot be: its workers race inside the vectors"):
        lockstep.replay(run)


def test_a_simulation_cannot(tmp_path: Path) -> None:
    lockstep.simulate(scenario()).save(tmp_path)
    with pytest.raises(ScenarioError, match="there is no interleaving"):
        lockstep.replay(tmp_path)


# --- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def command(command: Lockstep) -> Lockstep:
    return partial(command, "simulate")


def test_the_command_says_that_it_is_the_same(run: Path, command: Any) -> None:
    out = run.parent / "replayed"
    status, printed, _ = command("--replay", run, "--out", out)
    assert status == 0
    assert printed.endswith(
        "Replayed 96 updates in their order: the final parameters are the real run's, bit for bit.\n"
    )
    assert (out / "parameters.npy").read_bytes() == (run / "parameters.npy").read_bytes()
    assert not (out / "interleaving.parquet").exists()


def test_the_command_says_what_is_not_the_same(run: Path, command: Any) -> None:
    out = run.parent / "replayed"
    text = (run / "scenario.yaml").read_text()
    (run / "scenario.yaml").write_text(text.replace("seed: 3", "seed: 4"))
    status, printed, said = command("--replay", run, "--json", "--out", out)
    assert (status, printed.count("\n")) == (3, 1)
    assert "error: the replay is not what the real run was: the updates are the same, the final para" in said
    assert (out / "records.parquet").exists()


@pytest.mark.parametrize("more", [("quickstart",), ("--set", "seed=2"), ("--out", "{run}")])
def test_the_command_has_one_scenario(run: Path, command: Any, more: tuple[str, ...]) -> None:
    status, _, said = command("--replay", run, *(part.format(run=run) for part in more))
    assert status == 2
    assert said.startswith("error: --")
    assert said.count("\n") == 1
