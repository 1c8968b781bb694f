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
