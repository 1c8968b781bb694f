"""Real runs that are killed go on from their checkpoints, and end with the bits of one that was not."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.analysis.losses import CUT_OFF
from lockstep.analysis.saved import load
from lockstep.executor import blame, checkpoint_file
from lockstep.executor.launch import RunFailed
from lockstep.job.incarnation import Saved
from lockstep.scenarios.loading import made
from lockstep.strategies.optimizers import Age
from lockstep.studies.chaos.invariants import broken
from tests.support.command_line import COMMAND, Lockstep, fine
from tests.support.commands import SOON, processes, until
from tests.support.failing import CRASH, HANG, LINK, PARTITION, SERVER, document, killed_at
from tests.support.nightly import drawn
from tests.support.testbed import needs_testbed


@pytest.fixture(scope="module")
def whole() -> Any:
    """What comes of it without faults."""
    return lockstep.simulate(made(document())).parameters


@pytest.mark.real
def test_a_real_run_that_is_killed_ends_with_the_same_parameters(whole: Any) -> None:
    result = lockstep.run(made(document(CRASH)))
    assert result.parameters is not None
    assert np.array_equal(result.parameters, whole)
    metrics = result.metrics
    assert metrics["samples"] == 60 * 2 * 32
    assert metrics["failures"] == 1
    assert 0.3 <= metrics["time_to_detect_s"] <= 0.31
    assert metrics["time_to_recover_s"] >= 0.5
    assert metrics["lost_samples"] <= 2 * 6 * 32


@pytest.mark.real
def test_a_run_goes_on_whose_launcher_was_killed(tmp_path: Path, whole: Any, command: Lockstep) -> None:
    file, out = tmp_path / "faults.yaml", tmp_path / "out"
    file.write_text(json.dumps(document(CRASH | {"at": "200 ms"})))
    killed_at(file, out, version=10)
    fine(command("run", "--resume", out, "--quiet"))
    assert np.array_equal(np.load(out / "parameters.npy"), whole)
    assert not (out / "incomplete").exists()
    metrics = json.loads((out / "result.json").read_text())
    assert metrics["samples"] == 60 * 2 * 32
    assert metrics["failures"] == 2  # what was before is not forgotten, and the death of all is one
    crash, *whole_job = lockstep.records(out).query("event == 'fault'").itertuples()
    back = lockstep.records(out).query("event == 'recovery'")["end"].min()
    assert back - crash.start >= 0.5
    assert {(each.node, each.kind) for each in whole_job} == {(0, "crash"), (1, "crash"), (2, "crash")}
    assert metrics["availability"] < 1
    replayed = lockstep.replay(out)
    assert replayed.metrics["parameters_sha256"] == metrics["parameters_sha256"]
    assert not [*broken(replayed), *broken(load(out))]


@pytest.mark.real
def test_who_stands_still_does_not_outlive_its_launcher(tmp_path: Path) -> None:
    """A stopped process sees nothing by itself."""
    file = tmp_path / "faults.yaml"
    hang, late = HANG | {"at": "500 ms", "hang_for": "60 s"}, {"detect": "120 s"}
    file.write_text(json.dumps(document(hang, cluster=late, stop={"time": "90 s"})))
    run = subprocess.Popen([*COMMAND, "run", str(file), "--yes", "--quiet"], start_new_session=True)
    try:
        hangs = time.monotonic() + 60
        while not any(map(blame.is_stopped, processes(run.pid))):
            assert run.poll() is None
            assert time.monotonic() < hangs
            time.sleep(0.05)
        run.kill()
        run.wait()
        assert until(lambda: not processes(run.pid), SOON)
    finally:
        for pid in processes(run.pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.real
def test_who_fails_while_a_resumed_run_begins_is_waited_for(tmp_path: Path, command: Lockstep) -> None:
    """By the clock it fails before all are connected. (Other bits, if a gradient is under way just then.)"""
    file, out = tmp_path / "faults.yaml", tmp_path / "out"
    instants = ((0, "1 s"), (1, "1200 ms"), (0, "1400 ms"))
    crashes = [CRASH | {"worker": who, "at": at, "back_after": "100 ms"} for who, at in instants]
    recovery = {"checkpoint": {"every": "5 updates"}, "on_failure": "wait"}
    file.write_text(json.dumps(document(*crashes, recovery=recovery)))
    killed_at(file, out, version=10)
    fine(command("run", "--resume", out, "--quiet"))
    metrics = json.loads((out / "result.json").read_text())
    assert metrics["updates"] == 60
    assert 2 <= metrics["failures"] <= 4  # not all, if they come before the launcher is killed, which is one
    assert lockstep.replay(out).metrics["parameters_sha256"] == metrics["parameters_sha256"]


@pytest.mark.real
@pytest.mark.parametrize(
    ("fault", "testbed"),
    [
        pytest.param(LINK, False, id="link-here"),
        pytest.param(PARTITION, True, id="partition-testbed", marks=needs_testbed),
        pytest.param(LINK, True, id="link-testbed", marks=[needs_testbed, pytest.mark.nightly]),
        pytest.param(PARTITION, False, id="partition-here", marks=pytest.mark.nightly),
    ],
)
def test_a_link_that_is_cut_holds_up_a_round(fault: Any, testbed: bool, whole: Any) -> None:
    """In the real run as in the simulated: no update comes meanwhile, and nothing is lost."""
    scenario = made(document(fault, cluster={"detect": "5 s", "network": {"bandwidth": "1 Gbit/s"}}))
    found, model = lockstep.run(scenario, testbed=testbed), lockstep.simulate(scenario)
    assert found.parameters is not None
    assert np.array_equal(found.parameters, whole)
    for result in (found, model):
        updates = result.records.query("event == 'update'")["end"].sort_values()
        assert updates.diff().max() >= 0.8
    assert found.metrics["failures"] == found.metrics["lost_samples"] == 0
    assert found.metrics["availability"] == pytest.approx(model.metrics["availability"], rel=0.05)


@pytest.mark.real
def test_a_link_that_is_cut_for_long_is_a_failure(whole: Any) -> None:
    result = lockstep.run(made(document(LINK)))
    assert result.parameters is not None
    assert np.array_equal(result.parameters, whole)
    metrics = result.metrics
    assert metrics["failures"] == 1
    assert metrics["time_to_detect_s"] == pytest.approx(0.3, abs=0.01)
    assert metrics["samples"] == 60 * 2 * 32


@pytest.mark.real
@pytest.mark.parametrize(
    ("strategy", "micro_batches", "fault"),
    drawn(
        [
            (*job, fault)
            for job in (("synchronous", 1), ("all-reduce", 1), ("synchronous", 2), ("p3", 2))
            for fault in (CRASH, CRASH | {"exits_after": "200 ms"}, HANG)
        ],
        one_in=6,
        family=lambda case: case[0] == "all-reduce",
    ),
)
def test_a_worker_that_is_waited_for_takes_its_mini_batch_again(
    strategy: str, micro_batches: int, fault: Any
) -> None:
    """It fails in the midst of its third; the parameters are those of a run in which nobody does."""
    more: dict[str, Any] = {
        "strategy": {"name": strategy, "optimizer": "adam"},
        "parallelism": {"micro_batches": micro_batches},
        "stop": {"updates": 6},
        "recovery": {"on_failure": "wait"},
    }
    slow = {"compute": {"time": {"distribution": "constant", "value": "300 ms"}}}
    found = lockstep.run(made(document(fault | {"at": "750 ms"}, cluster=slow, **more)))
    assert found.parameters is not None
    assert found.metrics["samples"] == 6 * 2 * 32
    assert np.array_equal(
        found.parameters, lockstep.simulate(made(document(cluster=slow, **more))).parameters
    )


@pytest.mark.real
@pytest.mark.parametrize(
    ("servers", "on"), [(1, "continue"), pytest.param(2, "wait", marks=pytest.mark.nightly)]
)
def test_a_server_that_is_back_goes_on_from_its_checkpoint(servers: int, on: str) -> None:
    """Its workers lose the gradients that they were at: as in the simulation, bit for bit."""
    cluster = {
        "servers": servers,
        "compute": {"time": {"distribution": "constant", "value": "800 ms"}},
    }
    crash = SERVER | {"at": "2200 ms"}  # in a third gradient, which may begin 600 ms late
    more: dict[str, Any] = {
        "stop": {"updates": 4},
        "recovery": {"checkpoint": {"every": "1 updates"}, "on_failure": on},
    }
    scenario = made(document(crash, cluster=cluster, **more))
    found, model = lockstep.run(scenario), lockstep.simulate(scenario)
    assert found.parameters is not None
    assert np.array_equal(found.parameters, model.parameters)
    for key in ("samples", "updates", "lost_samples", "failures"):
        assert found.metrics[key] == model.metrics[key], key
    assert found.metrics["lost_samples"] == 2 * 32
    assert found.metrics["time_to_recover_s"] >= 0.5
    assert not [*broken(found)]
    assert len(found.curve) == len(model.curve)  # what was before the crash has been kept


@pytest.mark.real
@pytest.mark.nightly
def test_a_server_that_is_back_ends_the_gradients_under_way() -> None:
    slow = {"compute": {"time": {"distribution": "constant", "value": "4 s"}}}
    crash = SERVER | {"at": "200 ms", "back_after": "500 ms"}
    more: dict[str, Any] = {"stop": {"updates": 1}, "recovery": {"on_failure": "continue"}}
    found = lockstep.run(made(document(crash, cluster=slow, **more)))
    gradients = found.records.query("event == 'gradient'")
    assert [*gradients["version"]] == [0] * 4
    assert [*gradients["kind"]] == [CUT_OFF] * 2 + [""] * 2
    assert gradients["start"].iloc[2:].min() >= gradients["end"].iloc[:2].max() >= 0.7
    assert found.metrics["lost_samples"] == 0
    assert not [*broken(found)]


AVERAGED = {"averaging_period": 3, "optimizer": "adam"}
SETTINGS: dict[str, dict[str, Any]] = {
    "diloco": {"strategy": {"name": "diloco", **AVERAGED}},
    "streaming-diloco": {"strategy": {"name": "streaming-diloco", "fragments": 3, **AVERAGED}},
    "post-local-sgd": {"strategy": {"name": "post-local-sgd", "switch_step": 5, **AVERAGED}},
    "pipe-sgd": {"strategy": {"name": "pipe-sgd", "optimizer": "adam"}},
    "all-reduce-jobs": {"strategy": "all-reduce-jobs"},
    "sgp": {"strategy": {"name": "sgp", "optimizer": "adam"}},
    "fsdp": {"strategy": {"name": "fsdp", "units": 2, "optimizer": "adam"}},
    "fsdp-2": {"strategy": {"name": "fsdp", "zero": 2, "optimizer": "adam"}},
    "hsdp": {"strategy": {"name": "hsdp", "group_size": 1, "optimizer": "adam"}},
    "p3": {"strategy": {"name": "p3", "units": 2}},
    "pipeline": {"parallelism": {"pipeline": 2}},
    "tensor": {"parallelism": {"tensor": 2}, "strategy": {"name": "all-reduce", "optimizer": "adam"}},
    "pipedream-2bw": {"parallelism": {"pipeline": 2}, "strategy": {"name": "pipedream-2bw"}},
}


@pytest.mark.real
@pytest.mark.parametrize("name", drawn([*SETTINGS], one_in=7))
def test_other_strategies_end_with_the_same_parameters(name: str) -> None:
    more = {
        "recovery": {"checkpoint": {"every": "2 updates"}, "on_failure": "restart"},
        "stop": {"steps": 36},
    }
    failed = lockstep.run(made(document(CRASH, **more, **SETTINGS[name])))
    assert failed.metrics["failures"] == 1
    assert failed.parameters is not None
    whole = lockstep.simulate(made(document(**more, **SETTINGS[name]))).parameters
    assert np.array_equal(failed.parameters, whole)


@pytest.mark.real
def test_a_process_that_stands_still_by_plan_does_not_mark_the_run() -> None:
    hang, late = HANG | {"hang_for": "1500 ms"}, {"detect": "3 s"}
    found = lockstep.run(made(document(hang, cluster=late, stop={"time": "4 s"})))
    assert found.records.query("event == 'gradient' and node == 1")["end"].max() > 3
    assert not [line for line in found.disturbances if line.startswith("disturbed: worker 1")]


@pytest.mark.real
def test_workers_join_and_leave_by_plan() -> None:
    changes = [{"workers": {"add": 1}, "at": "1 s"}, {"workers": {"remove": [0]}, "at": "2 s"}]
    more: dict[str, Any] = {"stop": {"time": "3 s"}, "recovery": {"on_failure": "stop"}}
    scenario = made(document(*changes, **more))
    for result in (lockstep.run(scenario), lockstep.simulate(scenario)):
        updates = result.records.query("event == 'update'")
        at = [updates[updates["end"].between(*span)] for span in ((0, 1), (1.5, 2), (2.5, 3))]
        assert [set(each["peer"]) for each in at] == [{0, 1}, {0, 1, 2}, {1, 2}]
        assert set(at[1].groupby("version").size()) == {3}
        assert result.metrics["failures"] == 0


@pytest.mark.real
def test_a_notice_saves_a_checkpoint() -> None:
    taken = CRASH | {"notice": "400 ms"}
    del taken["crash"]
    more = {"recovery": {"checkpoint": {"every": "1000 updates"}, "on_failure": "restart"}}
    scenario = made(document(taken, **more))
    for result in (lockstep.run(scenario), lockstep.simulate(scenario)):
        assert result.metrics["failures"] == 1
        assert result.metrics["lost_samples"] <= 12 * 2 * 32  # of 20 rounds until then


@pytest.mark.real
def test_a_failure_ends_a_run_that_does_not_recover() -> None:
    with pytest.raises(RunFailed, match=r"worker 1 \(rank 1\) crashed at 1 s .*on_failure is stop"):
        lockstep.run(made(document(CRASH, recovery={"on_failure": "stop"})))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"faults": [LINK], "strategy": {"name": "all-reduce", "algorithm": "native"}},
            "cluster.faults: a link is cut, and without a testbed .* strategy.algorithm: ring",
        ),
    ],
)
def test_what_real_runs_cannot_do_is_said(change: dict[str, Any], message: str) -> None:
    change = dict(change)
    faults = change.pop("faults", [CRASH])
    with pytest.raises(lockstep.ScenarioError, match=message):
        lockstep.run(made(document(*faults, **change)))


def test_a_checkpoint_on_disk_has_every_bit(tmp_path: Path) -> None:
    import torch

    vector, half = torch.tensor([0.1, -0.0, float("inf")]), torch.arange(3, dtype=torch.bfloat16)
    saved = Saved(7, 9, ((vector, (Age(3, 2), half, 0.0)), 1.5))
    checkpoint_file.write(tmp_path / "checkpoint-7-0.npz", saved)
    found = checkpoint_file.read(tmp_path / "checkpoint-7-0.npz")
    ((own, (age, other, moment)), number) = found.state
    assert (found.version, age, moment, number) == (7, (3, 2), 0.0, 1.5)
    assert own.numpy().tobytes() == vector.numpy().tobytes()
    assert torch.equal(other, half)
