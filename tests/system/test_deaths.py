"""Processes of a real run that die, or hang, by themselves: the job recovers as from a fault."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.scenarios.loading import made
from lockstep.studies.chaos.invariants import broken
from tests.support.commands import HANGS, SLOWNESS, Command, until, wait_until_on_disk
from tests.support.failing import CRASH, document
from tests.support.nightly import drawn

pytestmark = pytest.mark.real

SUMS = {"name": "all-reduce", "optimizer": "adam", "algorithm": "ring"}
LEARNS = {"name": "synchronous", "optimizer": "adam"}


def job(strategy: Any, on: str, workers: int = 2, **more: Any) -> dict[str, Any]:
    """A job of which nothing says that it fails."""
    recovery = {"checkpoint": {"every": "5 updates"}, "on_failure": on}
    cluster = {"workers": workers, "detect": "2 s"}
    return document(strategy=strategy, recovery=recovery, cluster=cluster, **more)


def struck(folder: Path, scenario: dict[str, Any], *strikes: tuple[int, signal.Signals]) -> Path:
    """What a run leaves whose processes, by rank, get these signals once all workers have computed."""
    # once: one that is measured again, as the machine was disturbed, is struck no more
    run = Command(folder, "--quiet", "--attempts", "1", scenario=json.dumps(scenario))
    try:
        wait_until_on_disk(run.out, gradient={*range(scenario["cluster"]["workers"])})
        ranks = run.ranks()
        for rank, number in strikes:
            os.kill(ranks[rank], number)
        assert run.process.wait(HANGS) == 0, run.stderr.read_text()
        return run.out
    except AssertionError:
        print(run.stderr.read_text())
        raise
    finally:
        run.kill()


def checked(out: Path, failures: int) -> dict[str, Any]:
    """Its metrics; all adds up, and it can be repeated."""
    metrics: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert metrics["failures"] == failures
    replayed = lockstep.replay(out)
    assert replayed.metrics["parameters_sha256"] == metrics["parameters_sha256"]
    assert not [*broken(replayed)]
    return metrics


@pytest.mark.parametrize(
    ("on", "number"),
    [
        ("restart", signal.SIGKILL),
        ("restart", signal.SIGSTOP),
        *drawn([("spare", signal.SIGKILL), ("wait", signal.SIGKILL), ("wait", signal.SIGSTOP)], one_in=3),
    ],
)
def test_a_job_that_is_made_again_ends_with_the_bits_of_one_that_did_not_fail(
    on: str, number: signal.Signals, tmp_path: Path
) -> None:
    scenario = job(LEARNS, on, stop={"updates": 80})
    out = struck(tmp_path, scenario, (1, number))
    metrics = checked(out, failures=1)
    assert metrics["samples"] == 80 * 2 * 32
    assert np.array_equal(np.load(out / "parameters.npy"), lockstep.simulate(made(scenario)).parameters)
    if number is signal.SIGKILL:
        assert metrics["time_to_detect_s"] == 0
    else:
        assert 2.5 < metrics["time_to_detect_s"] < 15  # the deadline is 20 s


@pytest.mark.parametrize(
    ("strategy", "rank", "number"),
    drawn(
        [
            ("asynchronous", 1, signal.SIGKILL),
            ("asynchronous", 3, signal.SIGKILL),  # the server
            (LEARNS, 1, signal.SIGSTOP),
            (SUMS, 0, signal.SIGKILL),
            (SUMS, 2, signal.SIGSTOP),
            ("gossip", 1, signal.SIGKILL),
        ],
        one_in=3,
    ),
)
def test_others_go_on(strategy: Any, rank: int, number: signal.Signals, tmp_path: Path) -> None:
    scenario = job(strategy, "continue", workers=3, stop={"time": f"{9 * SLOWNESS} s"})
    out = struck(tmp_path, scenario, (rank, number))
    metrics = checked(out, failures=1)
    records = lockstep.records(out)
    fault = records.query("event == 'fault'").iloc[0]
    assert fault["node"] == rank
    gradients = records.query("event == 'gradient'")
    others = gradients[gradients["node"] != rank]["start"]
    if rank < 3:
        back = gradients[(gradients["node"] == rank) & (gradients["start"] > fault["end"])]["start"].min()
        assert back < 9 * SLOWNESS  # it is at work again
        if strategy in ("asynchronous", "gossip"):  # and the others were all along
            assert len(others[(others > fault["start"]) & (others < back)])
    assert metrics["time_to_recover_s"] > 0


@pytest.mark.parametrize("on", drawn(["continue", "restart"], one_in=2))
def test_a_death_and_a_fault_of_the_scenario(on: str, tmp_path: Path) -> None:
    scenario = job("asynchronous", on, workers=3, stop={"time": f"{12 * SLOWNESS} s"})
    scenario["cluster"]["faults"] = [CRASH | {"at": f"{6 * SLOWNESS} s"}]
    out = struck(tmp_path, scenario, (0, signal.SIGKILL))
    checked(out, failures=2)
    assert set(lockstep.records(out).query("event == 'fault'")["node"]) == {0, 1}


def test_one_that_fails_again_and_again_ends_the_run(tmp_path: Path) -> None:
    """It is killed as soon as it computes: no accident."""
    scenario = job("asynchronous", "continue", workers=2, stop={"time": "10 min"})
    run = Command(tmp_path, "--quiet", "--attempts", "1", scenario=json.dumps(scenario))
    try:
        wait_until_on_disk(run.out, gradient={0, 1})

        def strike() -> bool:
            pids = run.ranks()
            if len(pids) == 3:
                with suppress(ProcessLookupError):
                    os.kill(pids[-1], signal.SIGKILL)  # the youngest: who has taken the place
            return run.process.poll() is not None

        assert until(strike, HANGS), run.stderr.read_text()
        assert run.process.wait(HANGS) == 3
        assert "killed by SIGKILL" in run.stderr.read_text()
    finally:
        run.kill()


def test_who_dies_after_its_last_mini_batch_ends_the_run(tmp_path: Path) -> None:
    """It has nothing to make again; its records may have been on their way."""
    scenario = job("asynchronous", "continue", workers=2, stop={"steps": 10})
    scenario["cluster"]["stragglers"] = [{"worker": 1, "slowdown": 40}]
    run = Command(tmp_path, "--quiet", "--attempts", "1", scenario=json.dumps(scenario))
    try:
        wait_until_on_disk(run.out, gradient={0, 1})
        ranks = run.ranks()
        time.sleep(3)  # worker 0 takes half a second, and the other 20
        os.kill(ranks[0], signal.SIGKILL)
        assert run.process.wait(HANGS) == 3
        assert "worker 0 (rank 0) died: killed by SIGKILL" in run.stderr.read_text()
    finally:
        run.kill()
