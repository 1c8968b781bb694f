"""What `--replay` refuses, and what the command says: logs and records that do not fit, and one that does."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep import Result, ScenarioError, replaying
from lockstep.analysis.incomplete import Incomplete
from lockstep.replaying import ReplayDiffers
from lockstep.simulator.errors import SimulationError
from tests.support.command_line import Lockstep
from tests.support.replays import learning, updates
from tests.support.scenarios import scenario

pytestmark = pytest.mark.real


# --- what does not fit --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured() -> Result:
    return lockstep.run(learning("asynchronous", stop={"steps": 12}))


@pytest.fixture
def run(measured: Result, tmp_path: Path) -> Path:
    measured.save(tmp_path / "run")
    return tmp_path / "run"


def test_a_run_that_was_killed_is_to_be_resumed(tmp_path: Path) -> None:
    with Incomplete(tmp_path, learning("asynchronous")):
        pass
    with pytest.raises(
        ScenarioError, match=r"no result yet: the run .* was killed; .*'lockstep run --resume /"
    ):
        replaying.load(tmp_path)


def test_a_run_without_a_log_is_refused_in_a_line(run: Path) -> None:
    (run / "interleaving.parquet").unlink()
    with pytest.raises(ScenarioError, match=r"no interleaving\.parquet; give the --out"):
        replaying.load(run)


def test_a_checkpoint_that_nobody_writes_does_not_fit(run: Path) -> None:
    def lives(log: pd.DataFrame) -> pd.DataFrame:
        first, second = log.groupby("node").head(1), log.groupby("node").head(1)
        first = first.assign(word="life", peer=0, number=0, version=0, answer=0.0)
        second = first.assign(peer=1, version=5, answer=1.0)
        return pd.concat([first, log, second]).sort_values("node", kind="stable")

    edit(run, lives)
    with pytest.raises(SimulationError, match="server 0 does not write the checkpoint of version 5"):
        lockstep.replay(run)


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
    """Two pushes of two workers at one server, in the middle of the run, the other way round.

    What is found out first depends on the run: that the second worker was not answered yet and sends
    nothing, or that the first one's next push is of another version.
    """
    found = pushes(log, server=4)
    peers = found["peer"].tolist()
    place = next(i for i in range(len(found) // 2, len(found)) if peers[i] != peers[i - 1])
    order, a, b = [*log.index], found.index[place - 1], found.index[place]
    order[a], order[b] = b, a
    return log.loc[order]


def another_version(log: pd.DataFrame) -> pd.DataFrame:
    log.loc[pushes(log, server=4).index[5], "version"] += 1
    return log


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
            r"\(rank \d\), entry \d+ \(message .*\): (no such message comes|its version is \d+, and was)",
        ),
        (
            another_version,
            r"server 0 \(rank 4\), entry \d+ \(message push .*\): its version is \d+, and was",
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
        # which node is found out first, and by what, depends on how the messages of the real run fell
        (
            "name: asynchronous",
            "name: synchronous",
            r"\(rank \d\), entry \d+ .*: (the strategy|no such message comes)",
        ),
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
        (
            lambda run: edit(run, lambda log: log.drop(columns="peer")),
            "its files cannot be read .KeyError: 'peer'.",
        ),
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
