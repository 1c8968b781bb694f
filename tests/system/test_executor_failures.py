"""However a real run ends: what it says, what it keeps, and that nothing is left of it.

Most tests strike at a `lockstep run` that is under way. The command is the real one; only its progress goes
to a file, so that a test knows when.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.executor import process
from lockstep.executor.launch import RunFailed, RunInterrupted
from lockstep.scenarios import ScenarioError
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy
from tests.support.commands import HANGS, Command, commands, nodes, processes, until, wait_until_on_disk
from tests.support.pace import slowness
from tests.support.scenarios import scenario

pytestmark = pytest.mark.real

# The others are in a collective most of the time, waiting for worker 2.
NATIVE = (
    "--set", "strategy={name: all-reduce, algorithm: native}",
    "--set", "cluster.stragglers=[{worker: 2, slowdown: 10}]",
)  # fmt: skip
# The programs of workers 0 and 1 end soon; they go on answering worker 2, until it has ended too.
ANSWERING = (
    "--set", "strategy=ad-psgd", "--set", "stop={steps: 30}",
    "--set", "cluster.stragglers=[{worker: 2, slowdown: 100000}]", "--yes",
)  # fmt: skip
OPTIONS = {
    "answering": ANSWERING, "answering Ctrl-C": ANSWERING, "worker": (), "server": (), "parent": (),
    "collective": NATIVE, "Ctrl-C": (), "native Ctrl-C": NATIVE,
    "shared Ctrl-C": ("--set", "strategy=hogwild"), "SIGTERM": (),
}  # fmt: skip


@pytest.fixture(scope="module")
def under_way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Command]]:
    with commands(tmp_path_factory.mktemp("run"), OPTIONS) as found:
        yield found


@pytest.fixture(autouse=True)
def _no_test_hangs() -> Iterator[None]:
    def give_up(*_: Any) -> None:
        raise TimeoutError(f"the test has not ended in {HANGS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANGS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_a_worker_that_is_killed_is_named_and_the_records_of_all_are_kept(under_way) -> None:
    run = under_way["worker"]
    wait_until_on_disk(run.out, gradient={0, 1, 2}, update={3, 4})
    os.kill(run.ranks()[1], signal.SIGKILL)
    status, said = run.ends()
    assert (status, said.splitlines()[-1]) == (3, "error: worker 1 (rank 1) died: killed by SIGKILL")
    assert "Traceback" not in said
    records = run.kept()
    assert nodes(records, "gradient") == {0, 1, 2}
    assert nodes(records, "update") == {3, 4}
    assert set(records.loc[records["event"] == "update", "peer"]) == {0, 1, 2}  # what it gave is not lost


def test_a_server_that_is_killed_is_named_and_the_records_of_all_are_kept(under_way) -> None:
    run = under_way["server"]
    wait_until_on_disk(run.out, gradient={0, 1, 2}, update={3, 4})
    os.kill(run.ranks()[3], signal.SIGKILL)
    status, said = run.ends()
    assert (status, said.splitlines()[-1]) == (3, "error: server 0 (rank 3) died: killed by SIGKILL")
    records = run.kept()
    assert nodes(records, "gradient") == {0, 1, 2}
    assert nodes(records, "update") == {3, 4}


def test_a_death_in_a_collective_is_not_blamed_on_those_it_lets_fail(under_way) -> None:
    run = under_way["collective"]
    wait_until_on_disk(run.out, gradient={0, 1, 2})
    os.kill(run.ranks()[2], signal.SIGKILL)
    status, said = run.ends()
    assert (status, said.splitlines()[-1]) == (3, "error: worker 2 (rank 2) died: killed by SIGKILL")
    assert nodes(run.kept(), "gradient") == {0, 1, 2}


def test_a_death_after_the_programs_of_others_is_told(under_way) -> None:
    run = under_way["answering"]
    wait_until_on_disk(run.out, gradient={0, 1})
    os.kill(run.ranks()[2], signal.SIGKILL)
    status, said = run.ends()
    assert (status, said.splitlines()[-1]) == (3, "error: worker 2 (rank 2) died: killed by SIGKILL")
    assert nodes(run.kept(), "gradient") == {0, 1}


def test_ctrl_c_after_the_programs_of_some_keeps_their_records(under_way) -> None:
    run = under_way["answering Ctrl-C"]
    wait_until_on_disk(run.out, update={0, 1})
    os.killpg(run.process.pid, signal.SIGINT)
    status, said = run.ends()
    assert (status, said.splitlines()[-1]) == (130, "error: interrupted")
    assert nodes(run.kept(), "update") == {0, 1}


@pytest.mark.parametrize(
    ("name", "owners"), [("Ctrl-C", {3, 4}), ("native Ctrl-C", {0, 1, 2}), ("shared Ctrl-C", {0})]
)
def test_ctrl_c_ends_the_run_and_keeps_all_records(under_way, name: str, owners: set[int]) -> None:
    run = under_way[name]
    wait_until_on_disk(run.out, gradient={0, 1, 2}, update=owners)
    os.killpg(run.process.pid, signal.SIGINT)  # a terminal sends it to all processes
    status, said = run.ends()
    assert status == 130
    assert said.splitlines() == [
        f"What was measured until then: {run.out / 'incomplete/records.parquet'}",
        "error: interrupted",
    ]
    records = run.kept()
    assert nodes(records, "gradient") == {0, 1, 2}
    assert nodes(records, "update") == owners


def test_sigterm_is_as_good_as_ctrl_c(under_way) -> None:
    run = under_way["SIGTERM"]
    wait_until_on_disk(run.out, gradient={0, 1, 2})
    run.process.terminate()
    status, said = run.ends()
    assert (status, said.splitlines()[-1]) == (130, "error: interrupted")
    assert nodes(run.kept(), "gradient") == {0, 1, 2}


def test_nothing_outlives_a_parent_that_is_killed(under_way) -> None:
    run = under_way["parent"]
    assert len(processes(run.process.pid)) > 5
    run.process.kill()
    assert run.ends()[0] == -signal.SIGKILL


def test_ctrl_c_while_the_processes_start(tmp_path: Path) -> None:
    run = Command(tmp_path, cold=True)
    try:
        assert until(
            lambda: len(processes(run.process.pid)) > 2, HANGS
        )  # what they are forked from, and more
        os.killpg(run.process.pid, signal.SIGINT)
        status, said = run.ends()
    finally:
        run.kill()
    assert (status, said.splitlines()[-1]) == (130, "error: interrupted")
    assert "Traceback" not in said


def test_ctrl_c_is_not_lost_on_what_catches_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def swallows(*_: Any) -> None:
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    ended: list[bool] = []  # for it would take seconds to start again
    monkeypatch.setattr("lockstep.executor.fork_server.kill_fork_server", lambda: ended.append(True))
    monkeypatch.setattr("lockstep.executor.collect.evaluator", swallows)
    with pytest.raises(RunInterrupted):
        lockstep.run(scenario(stop={"time": "10 min"}))
    assert ended


def test_ctrl_c_is_not_taken_for_an_error_that_is_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def changes(*_: Any) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt as interrupt:
            raise ValueError(f"Error calling function: {interrupt!r}") from None

    monkeypatch.setattr("lockstep.executor.fork_server.start_fork_server", lambda imported: None)
    monkeypatch.setattr("lockstep.executor.collect.evaluator", changes)
    with pytest.raises(KeyboardInterrupt):
        lockstep.run(scenario(stop={"time": "10 min"}))


def test_more_processes_than_memory_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.workloads.memory.free_bytes", lambda: 50e6)
    with pytest.raises(ScenarioError, match=r"^cluster.workers: a run of its \d processes takes 0.\d GB"):
        lockstep.run(scenario())
    monkeypatch.setattr("lockstep.workloads.memory.free_bytes", lambda: 10e9)
    large = scenario(workload={"parameters": 1_000_000_000})  # room for the processes, not for the model
    with pytest.raises(ScenarioError, match=r"^cluster.workers: a run of its 5 processes takes \d+.\d GB"):
        lockstep.run(large)


# ------------------------------------------------------------------ mistakes in a strategy


async def mistaken(node: Node) -> None:
    """Worker 1 makes a mistake in its third round; the others wait for it in a collective."""
    while await node.next_batch_available():
        gradient = await node.gradient(node.initial_parameters())
        if node.index == 1 and node.step == 3:
            raise LookupError("the strategy's own\nand more of it")
        await node.all_reduce(gradient)


async def mistaken_beside(node: Node) -> None:
    """As above, but in a second activity, while the first one waits."""

    async def beside() -> None:
        await node.gradient(node.initial_parameters())
        raise LookupError("the strategy's own")

    if node.index == 1:
        node.spawn(beside())
    await node.receive("word")


async def not_the_nodes(node: Node) -> None:
    """Awaits what is no member of its node."""

    class Strange:
        def __await__(self) -> Iterator[None]:
            yield

    await Strange()


async def one_is_late(node: Node) -> None:
    """Worker 1 looks late whether there is more to do: the others are in a collective by then."""
    version, parameters = 0, node.initial_parameters()
    while await node.next_batch_available():
        parameters = parameters - await node.all_reduce(await node.gradient(parameters))
        version += 1
        await node.updated(version, parameters, [Contribution(node.rank, 0, 1)])
        if node.index == 1:
            await node.sleep(0.1)


UNDER_TEST = {
    program.__name__: Strategy(program, equal_steps=True)
    for program in (mistaken, mistaken_beside, not_the_nodes, one_is_late)
}
the_real_main = process.main


def main_that_knows_them(*arguments: Any) -> None:
    """A process of the run: it imports this module, so it can have the strategies that the parent has."""
    STRATEGIES.update(UNDER_TEST)
    the_real_main(*arguments)


@pytest.fixture
def run_strategy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., lockstep.Result]:
    monkeypatch.setattr("lockstep.executor.process.main", main_that_knows_them)
    for name, strategy in UNDER_TEST.items():
        monkeypatch.setitem(STRATEGIES, name, strategy)
    return lambda name, **changes: lockstep.run(scenario(strategy=name, cluster__workers=3, **changes))


@pytest.mark.parametrize("name", ["mistaken", "mistaken_beside"])
def test_a_mistake_in_a_strategy_is_told_with_its_traceback(run_strategy, name: str) -> None:
    with pytest.raises(RunFailed) as caught:
        run_strategy(name)
    failure = caught.value
    assert str(failure) == "worker 1 (rank 1) died: LookupError: the strategy's own"
    assert f"in {name}\n" in failure.details
    assert 'raise LookupError("the strategy' in failure.details
    assert failure.records is not None
    assert nodes(failure.records, "gradient") >= {1}


def test_awaiting_what_is_not_the_nodes_is_refused(run_strategy) -> None:
    with pytest.raises(RunFailed, match=r"rank \d\) died: TypeError: a strategy may only await members"):
        run_strategy("not_the_nodes")


def test_workers_leave_a_collective_together_when_the_time_is_up(run_strategy) -> None:
    result = run_strategy("one_is_late", stop={"time": "0.7 s"})
    updates = result.records[result.records["event"] == "update"]
    assert updates.groupby("node")["version"].max().nunique() == 1
    assert 0 < result.metrics["updates"] < 10


# ------------------------------------------------------------------ how a run is meant to end


def digits(strategy: str | dict[str, Any], stop: dict[str, Any], workers: int = 2) -> lockstep.Result:
    return lockstep.run(
        scenario(
            cluster__workers=workers, cluster__servers=2, strategy=strategy, stop=stop,
            cluster__compute={"time": {"distribution": "constant", "value": "5 ms"}},
            workload={"dataset": "digits", "model": "mlp", "batch_size": 64},
        )
    )  # fmt: skip


RING, COLLECTIVE = {"name": "all-reduce"}, {"name": "all-reduce", "algorithm": "native"}
EACH = pytest.mark.parametrize("strategy", ["synchronous", "asynchronous", RING, COLLECTIVE], ids=str)


@EACH
def test_steps_are_mini_batches_of_each_worker(strategy) -> None:
    metrics = digits(strategy, {"steps": 7}).metrics
    assert metrics["samples"] == 2 * 7 * 64
    assert metrics["updates"] == (14 if strategy == "asynchronous" else 7)


@EACH
def test_updates_are_those_of_the_parameters(strategy) -> None:
    metrics = digits(strategy, {"updates": 9, "time": "1 min"}).metrics
    assert metrics["updates"] == 9
    assert metrics["samples"] == pytest.approx(9 * 64 * (1 if strategy == "asynchronous" else 2), abs=2 * 64)
    assert metrics["duration_s"] < 30


@EACH
def test_epochs_are_passes_of_all_workers_together(strategy) -> None:
    metrics = digits(strategy, {"epochs": 2}).metrics
    batches = int(np.ceil(2 * 1437 / 64))  # 45: an odd one is rounded up where workers keep step
    assert metrics["samples"] == 64 * (batches if strategy == "asynchronous" else 2 * -(-batches // 2))


@EACH
@pytest.mark.alone
def test_time_is_that_of_the_clock(strategy) -> None:
    limit = 0.6 * slowness()
    metrics = digits(strategy, {"time": f"{limit} s"}).metrics
    assert limit / 3 < metrics["duration_s"] < 2.5 * limit
    assert metrics["updates"] > 3


@EACH
def test_a_target_ends_the_run_when_it_is_reached(strategy) -> None:
    learning = {"learning_rate": 0.2, **({"name": strategy} if isinstance(strategy, str) else strategy)}
    metrics = digits(learning, {"target_accuracy": 0.5, "steps": 4000}).metrics
    assert metrics["time_to_target_s"] is not None
    assert metrics["samples"] < 2 * 4000 * 64 / 2


def test_the_first_bound_reached_counts() -> None:
    assert digits("synchronous", {"steps": 3, "updates": 5}).metrics["updates"] == 3
    assert digits("synchronous", {"steps": 5, "updates": 3}).metrics["updates"] == 3
    assert digits("asynchronous", {"steps": 20, "updates": 30}).metrics["updates"] == 30


# ------------------------------------------------------------------ from Python


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import lockstep\n"
        "print('top level')\n"
        "changes = ['workload={problem: quadratic}', 'stop={steps: 3}', 'cluster.workers=2',\n"
        "           'cluster.stragglers=[]']\n"
        "result = lockstep.run(lockstep.load('quickstart', changes))\n"
        "print(result.metrics['samples'])\n"
    )
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["top", "level", str(2 * 3 * 32)]


def test_handlers_of_signals_are_given_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    lockstep.run(scenario(stop={"steps": 1}))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
