"""`torchrun … -m lockstep.executor`: the same run as `lockstep run`, started by torchrun."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep
from tests.support.commands import HANGS, SOON, is_alive, nodes, until, wait_until_on_disk
from tests.support.forked import Forked
from tests.support.nightly import drawn
from tests.support.tasks import document, task, written
from tests.support.torchrun import ENTRY, LATE, QUADRATIC, SCENARIO

pytestmark = pytest.mark.real

KEYS = {
    "schema", "engine", "scenario", "seed", "workers", "strategy", "duration_s", "updates", "updates_per_s",
    "samples", "throughput", "dropped", "staleness", "speedup", "efficiency", "bytes_sent", "memory_bytes",
    "breakdown", "breakdown_by_worker", "utilisation", "bottleneck", "loss", "accuracy", "metrics",
    "target", "target_metric", "time_to_target_s", "parameters_sha256", "disturbed", "attempts",
    "warnings",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """So many processes, and what is changed in the scenario."""

    processes: int
    changes: tuple[str, ...] = ()


CASES = {
    "synchronous": Case(3),
    "ring": Case(2, (QUADRATIC, "strategy={name: all-reduce}")),
    "native": Case(2, (QUADRATIC, "strategy={name: all-reduce, algorithm: native}")),
    "target": Case(2, ("strategy={name: all-reduce, algorithm: native, learning_rate: 0.2}",
                       "stop={target_accuracy: 0.5, steps: 2000}")),
    "too few": Case(1),
}  # fmt: skip


def torchrun(count: int, *program: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *alone(count), *program]


def alone(count: int) -> list[str]:
    return ["--standalone", f"--nproc-per-node={count}"]


def forked(folder: Path, count: int, *program: str) -> subprocess.CompletedProcess[str]:
    """How torchrun ends and what it says. It is forked; its processes are not."""
    said, code = (folder / "stdout", folder / "stderr"), "from torch.distributed.run import main; main()"
    status = Forked(code, [*alone(count), *program], os.environ, *said).wait(HANGS)
    return subprocess.CompletedProcess(program, status, *(file.read_text() for file in said))


@pytest.fixture(scope="module", autouse=True)
def _own_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Torchrun leaves empty logs behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        yield


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Path]]:
    """The run of a case, once it has ended, and its --out."""
    file = tmp_path_factory.mktemp("torchrun") / "small.yaml"
    file.write_text(SCENARIO)

    def run(name: str) -> tuple[subprocess.CompletedProcess[str], Path]:
        out, case = file.parent / name, CASES[name]
        options = [option for change in case.changes for option in ("--set", change)]
        command = torchrun(case.processes, "-m", "lockstep.executor", str(file), "--out", str(out), *options)
        return subprocess.run(command, capture_output=True, text=True, timeout=HANGS), out

    return run


@pytest.mark.parametrize("name", drawn(["synchronous", "ring", "native"], one_in=3))
def test_it_is_the_run_that_lockstep_would_have_made(ended, name: str, tmp_path: Path) -> None:
    done, out = ended(name)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    result = json.loads(done.stdout)  # exactly one object, and nothing else
    assert set(result) == KEYS
    assert sorted(path.name for path in out.iterdir()) == [
        "interleaving.parquet", "parameters.npy", "records.parquet", "result.json", "scenario.yaml",
    ]  # fmt: skip
    assert json.loads((out / "result.json").read_text()) == result

    (tmp_path / "small.yaml").write_text(SCENARIO)
    here = lockstep.run(lockstep.load(tmp_path / "small.yaml", CASES[name].changes))
    assert np.array_equal(np.load(out / "parameters.npy"), here.parameters)
    same = ("updates", "samples", "bytes_sent", "loss", "accuracy", "parameters_sha256")
    assert {key: result[key] for key in same} == {key: here.metrics[key] for key in same}


@pytest.mark.nightly
def test_a_target_ends_it(ended) -> None:
    done, _ = ended("target")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["time_to_target_s"] is not None
    assert result["updates"] < 2000


def told_once(done: subprocess.CompletedProcess[str], message: str) -> bool:
    assert done.returncode != 0
    assert done.stdout == ""
    complaints = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(complaints) == 1, complaints
    return message in complaints[0]


def test_bad_input_is_told_once(ended) -> None:
    done, out = ended("too few")
    needs = "the scenario needs 3 processes (2 for workers, 1 for servers), torchrun started 1"
    assert told_once(done, needs)
    assert "exitcode  : 2 " in done.stderr  # torchrun's own summary
    assert not (out / "result.json").exists()


@pytest.fixture
def a_users(tmp_path: Path) -> Callable[..., Path]:
    """A scenario with a task that lies elsewhere, whose metrics are these."""

    def scenario(metrics: str, **changes: Any) -> Path:
        its = {key: changes.pop(key) for key in ("model", "more") if key in changes}
        there = written(tmp_path / "there", task(metrics=metrics, **its))
        workload = {"task": "my_task:f", "batch_size": 8, "root": str(there)}
        file = tmp_path / "here" / "mine.yaml"
        file.parent.mkdir()
        file.write_text(json.dumps(document(workload=workload, strategy="all-reduce", **changes)))
        return file

    return scenario


DRAWS = """
import os, time

class Slow(nn.Module):
    def forward(self, x):
        time.sleep(0.02 * self.training)  # between the seed of a gradient and its dropout
        return x

def drawn(output, batch):
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        torch.rand(1)
        time.sleep(0.001)
    return torch.rand(())

def fails(output, batch):
    if len(output) > 2:
        raise LookupError("the metric's own")
    return output.sum()
"""


def test_a_task_of_a_users_whose_evaluations_do_not_draw_from_what_a_worker_draws_from(
    a_users: Callable[..., Path], tmp_path: Path
) -> None:
    file = a_users(
        "{'drawn': drawn}",
        more=DRAWS,
        model="nn.Sequential(nn.Linear(2, 2), Slow(), nn.Dropout(0.5))",
        stop={"steps": 12, "target": {"metric": "drawn", "at_least": 2}},
    )
    program = ("-m", "lockstep.executor", str(file))
    # one process: it is refused before anybody counts them
    done = forked(tmp_path, 1, *program)
    assert told_once(done, "code runs only from the current folder")
    done = forked(tmp_path, 2, *program, "--trust")
    assert done.returncode == 0, done.stderr
    here = lockstep.simulate(lockstep.load(file, trust=True))
    assert json.loads(done.stdout)["parameters_sha256"] == here.metrics["parameters_sha256"]


def test_an_evaluation_that_fails_ends_the_run(a_users: Callable[..., Path], tmp_path: Path) -> None:
    """Its thread had ended without a word: the target was never reached."""
    target = {"metric": "f1", "at_least": 2}
    file = a_users("{'f1': fails}", more=DRAWS, stop={"time": "10 min", "target": target})
    program = ("-m", "lockstep.executor", str(file), "--trust")
    done = forked(tmp_path, 2, *program)
    assert told_once(done, "its parameters cannot be evaluated: ")
    assert "my_task:f raised LookupError: the metric's own" in done.stderr


def test_metrics_are_tried_before_anything_runs(a_users: Callable[[str], Path], tmp_path: Path) -> None:
    program = ("-m", "lockstep.executor", str(a_users("{'f1': lambda output, batch: None}")), "--trust")
    done = forked(tmp_path, 1, *program)
    assert told_once(done, "the task's metric 'f1' must return a tensor")


def test_bad_input_that_processes_find_leaves_nothing(tmp_path: Path) -> None:
    """No `incomplete`, and no folder that was not there."""
    (tmp_path / "small.yaml").write_text(SCENARIO)
    changes = ("--set", "strategy={name: all-reduce}", "--set", "cluster.device=cuda")
    options = ("--out", str(tmp_path / "new" / "out"), *changes)
    program = ("-m", "lockstep.executor", str(tmp_path / "small.yaml"), *options)
    done = forked(tmp_path, 2, *program)
    assert told_once(done, "sees no GPU on")
    assert not (tmp_path / "new").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"small.yaml", "stdout", "stderr"}


def test_bad_input_is_told_once_where_a_process_comes_late(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    (tmp_path / "small.yaml").write_text(SCENARIO)
    program = (str(tmp_path / "late.py"), str(tmp_path / "small.yaml"), "--set", "strategy.name=synchronos")
    done = forked(tmp_path, 2, *program)
    assert told_once(done, "strategy.name: unknown strategy 'synchronos'; did you mean 'synchronous'?")
    assert done.stderr.count("unknown strategy") == 1
    assert "exitcode  : 2 " in done.stderr


def test_without_torchrun_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SCENARIO)
    command = [sys.executable, "-m", "lockstep.executor", str(tmp_path / "small.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 2
    assert "torchrun" in done.stderr
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------ runs that do not end well


class Torchrun:
    """torchrun with a run of two workers that has begun to measure."""

    def __init__(self, folder: Path) -> None:
        self.out, progress = folder / "out", folder / "progress"
        (folder / "small.yaml").write_text(SCENARIO)
        (folder / "entry.py").write_text(ENTRY)
        changes = ["--set", QUADRATIC, "--set", "strategy=all-reduce", "--set", "stop={time: 10 min}"]
        program = [str(folder / "entry.py"), str(folder / "small.yaml"), "--out", str(self.out), *changes]
        self.process = subprocess.Popen(
            torchrun(2, *program), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PROGRESS": str(progress)},
        )  # fmt: skip
        assert until(lambda: progress.exists() or self.process.poll() is not None, HANGS)
        self.ranks = children(self.process.pid)
        self.theirs = [each for rank in self.ranks for each in children(rank)]  # one evaluates the run

    def ends(self) -> str:
        """What torchrun says in the end; soon, and with no process left behind."""
        said = self.process.communicate(timeout=2 * SOON)[1]
        assert self.process.returncode != 0
        assert until(lambda: not any(map(is_alive, [*self.ranks, *self.theirs])), SOON)
        assert not list(Path(os.environ["TMPDIR"]).glob(f"lockstep-{self.process.pid}-*"))
        return said


@pytest.fixture
def under_way(tmp_path: Path) -> Iterator[Torchrun]:
    run = Torchrun(tmp_path)
    try:
        assert run.theirs
        assert len(run.ranks) == 2, run.process.communicate(timeout=SOON)
        yield run
    finally:
        for pid in (*run.ranks, run.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.process.communicate(timeout=SOON)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_rank_that_is_killed_is_named_and_the_records_of_the_others_are_kept(under_way: Torchrun) -> None:
    wait_until_on_disk(under_way.out, gradient={0, 1}, update={0, 1})
    os.kill(under_way.ranks[0], signal.SIGKILL)
    said = under_way.ends()
    cause = said[said.index("Root Cause") :]
    assert "rank      : 0 " in cause
    assert "SIGKILL" in cause
    assert f"What was measured until then: {under_way.out / 'incomplete'}" in said
    records = lockstep.records(under_way.out)
    assert nodes(records, "gradient") == nodes(records, "update") == {0, 1}


MISTAKEN = """
from lockstep.executor.__main__ import main
from lockstep.strategies import STRATEGIES, Strategy

async def mistaken(node):
    while await node.next_batch_available():
        gradient = await node.gradient(node.initial_parameters())
        if node.index == 1 and node.step == 3:
            raise LookupError("the strategy's own")
        await node.all_reduce(gradient)

STRATEGIES["mistaken"] = Strategy(mistaken, equal_steps=True)
raise SystemExit(main())
"""


STRANGER = """
import os, sys
import torch.distributed as dist
os.setuid(65534)
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False)
for key in ("outcome/0", "failure/0", "stop", "ending", "scenario", "batches", "leaving"):
    for prefix in ("", "worker/attempt_0/", "/worker/attempt_0/"):
        store.set(prefix + key, "1")
print("written")
"""


def test_ctrl_c_keeps_all_records_and_who_writes_into_torchruns_store_changes_nothing(
    under_way: Torchrun,
) -> None:
    """The store is anyone's: nothing of a run is there."""
    wait_until_on_disk(under_way.out, gradient={0, 1})
    environ = Path(f"/proc/{under_way.ranks[0]}/environ").read_bytes().split(b"\0")
    (port,) = [each.decode().partition("=")[2] for each in environ if each.startswith(b"MASTER_PORT=")]
    command = [sys.executable, "-c", STRANGER, port]
    assert subprocess.run(command, capture_output=True, text=True, timeout=HANGS).stdout == "written\n"
    time.sleep(2)
    assert all(map(is_alive, under_way.ranks))
    under_way.process.send_signal(signal.SIGINT)
    under_way.ends()
    assert nodes(lockstep.records(under_way.out), "gradient") == {0, 1}
    assert not (under_way.out / "result.json").exists()


def test_a_mistake_in_a_strategy_is_told_with_its_traceback(tmp_path: Path) -> None:
    """Worker 1 makes it; the other fails only because it waits for worker 1 in a collective."""
    out = tmp_path / "out"
    (tmp_path / "small.yaml").write_text(SCENARIO)
    (tmp_path / "entry.py").write_text(MISTAKEN)
    changes = ["--set", QUADRATIC, "--set", "strategy=mistaken", "--out", str(out)]
    done = forked(tmp_path, 2, str(tmp_path / "entry.py"), str(tmp_path / "small.yaml"), *changes)
    assert done.returncode != 0
    cause = done.stderr[done.stderr.index("Root Cause") :]
    assert "rank      : 1 " in cause
    assert "in mistaken\n" in cause
    assert "LookupError: the strategy's own" in cause
    records = lockstep.records(out)
    assert records[records["event"] == "gradient"].groupby("node")["version"].max().to_dict() == {0: 2, 1: 2}


def test_nothing_outlives_a_torchrun_that_is_killed(under_way: Torchrun) -> None:
    under_way.process.kill()
    under_way.ends()
