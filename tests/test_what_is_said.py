"""What commands say on their way."""

from pathlib import Path

from typer.testing import CliRunner

from lockstep.cli import app

SMALL = ["sizes-only", "--set", "stop.steps=1", "--set", "cluster.workers=2"]


def test_where_the_scalars_are_is_said(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["simulate", *SMALL, "--tensorboard", str(tmp_path / "logs")])
    assert said.exit_code == 0
    assert "Scalars written to" in said.stdout


def test_one_run_is_not_one_runs(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["sweep", *SMALL, "--jobs", "1", "--out", str(tmp_path)])
    assert said.exit_code == 0
    assert "1 run …" in said.stderr
