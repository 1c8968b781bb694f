"""What commands say on their way."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import lockstep
from lockstep.cli import app
from tests.support.command_line import Lockstep, fine

SMALL = ["sizes-only", "--set", "stop.steps=1", "--set", "cluster.workers=2"]


def test_where_the_scalars_are_is_said(tmp_path: Path) -> None:
    said = CliRunner().invoke(app(), ["simulate", *SMALL, "--tensorboard", str(tmp_path / "logs")])
    assert said.exit_code == 0
    assert "Scalars written to" in said.stdout


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], "all-reduce, 8 workers"),
        (["parallelism={micro_batches: 4}"], "all-reduce, 8 workers, 4 micro-batches"),
        (
            ["parallelism={pipeline: 4, micro_batches: 16}"],
            "all-reduce, 2 replicas of 4 stages, 1f1b, 16 micro-batches",
        ),
        (
            ["parallelism={pipeline: 8, micro_batches: 8, order: interleaved, chunks: 2}"],
            "all-reduce, 1 replica of 8 stages, interleaved with 2 chunks, 8 micro-batches",
        ),
        (
            ["parallelism={pipeline: 2, tensor: 2, micro_batches: 4}"],
            "all-reduce, 2 replicas of 2 stages × 2 parts, 1f1b, 4 micro-batches",
        ),
        (
            ["parallelism={tensor: 4, redundancy: 2}"],
            "all-reduce, 2 replicas of 2 parts, each on 2 devices",
        ),
        (
            ["parallelism={pipeline: 4}", "strategy=pipedream"],
            "pipedream, 2 replicas of 4 stages, 1 micro-batch",
        ),
    ],
)
def test_a_split_model_is_said_to_be_one(changes: list[str], said: str, command: Lockstep) -> None:
    changes = ["cluster.workers=8", "workload.batch_size=16", "strategy=all-reduce", *changes]
    ended = command("simulate", *SMALL, *(f"--set={change}" for change in changes))
    assert f"sizes-only: {said}\n" in "".join(f"{line.rstrip()}\n" for line in fine(ended).splitlines())


FAILING = [
    *SMALL,
    *("--set", "strategy=synchronous", "--set", "stop={updates: 40}", "--set", "cluster.detect=20 ms"),
    *("--set", "cluster.faults=[{worker: 1, at: 1500 ms, crash: true, back_after: 50 ms}]"),
    *("--set", "recovery={on_failure: restart, checkpoint: {every: 5 updates}}"),
]


def test_what_failures_cost_is_said(command: Lockstep) -> None:
    result = lockstep.simulate(lockstep.load(SMALL[0], FAILING[2::2]))
    shown = {
        words[0].strip(): words[1].strip()
        for line in fine(command("simulate", *FAILING)).splitlines()
        if len(words := line.strip("│").split("│")) == 2
    }
    m = result.metrics
    share = m["lost_samples"] / (m["samples"] + m["lost_samples"])
    assert m["lost_samples"] > 0
    assert shown["goodput"] == f"{m['goodput']:.4g} samples/s"
    assert shown["lost work"] == f"{m['lost_samples']} samples ({share:.1%} of all computed)"
    assert shown["failures"] == f"1, noticed after 0.02 s, back after {m['time_to_recover_s']:.3g} s"
    assert shown["availability"] == f"{m['availability']:.1%}"
    assert shown["checkpoints"].startswith(f"{m['checkpoints']} in ")


@pytest.mark.parametrize("fails", [True, False])
def test_what_failures_cost_is_in_the_table_of_a_sweep(fails: bool, command: Lockstep) -> None:
    options = ["--set", "sweep={cluster.workers: [2, 3]}", "--jobs", "1"]
    shown = fine(command("sweep", *(FAILING if fails else SMALL), *options))
    for words in ("goodput", "lost", "availability", "recover"):
        assert (words in shown) == fails


def test_one_run_is_not_one_runs(tmp_path: Path) -> None:
    said = CliRunner().invoke(app(), ["sweep", *SMALL, "--jobs", "1", "--out", str(tmp_path)])
    assert said.exit_code == 0
    assert "1 run …" in said.stderr


def test_a_run_says_that_the_network_was_not_the_scenarios(
    command: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.run", lambda scenario, *_, **__: lockstep.simulate(scenario))
    ended = command("run", *SMALL, "--set", "cluster.network={bandwidth: 1 Gbit/s, latency: 50 us}")
    fine(ended)
    said = [line for line in ended.err.splitlines() if line.startswith("note: it ran")]
    assert said == [
        "note: it ran inside this machine, not over the scenario's network (1 Gbit/s per direction and card, "
        "50 us latency): --testbed builds that one"
    ]
    for quiet in (["--json"], ["--set", "cluster.network={}"]):
        assert "it ran inside" not in command("run", *SMALL, *quiet).err
