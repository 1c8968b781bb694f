"""README's *Your model*, done: the module and the scenario that it shows, through every command."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support import ROOT
from tests.support.brief import briefly
from tests.support.command_line import Lockstep, fine

README = (ROOT / "README.md").read_text(encoding="utf-8")
FEWER = ("--set", "stop={steps: 8}")


@pytest.mark.real
@pytest.mark.slow
def test_from_calibration_to_recommendation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Lockstep
) -> None:
    """In a folder outside the project. Calibration is of fewer gradients than a profile needs to be good."""
    briefly(monkeypatch)
    monkeypatch.chdir(tmp_path)
    section = README.partition("\n## Your model\n")[2].partition("\n## ")[0]
    module, scenario = (
        re.findall(rf"^```{kind}\n(.*?)^```$", section, re.S | re.M)[0] for kind in ("python", "yaml")
    )
    assert len([line for line in module.splitlines() if line.strip() and line[0] != "#"]) <= 15
    (tmp_path / "my_task.py").write_text(module)
    (tmp_path / "my.yaml").write_text(scenario)
    fine(command("calibrate", "my.yaml", "--only", "compute", "--out", "mine.yaml", "--quiet"))
    (tmp_path / "my.yaml").write_text(scenario.replace("compute: measured", "profile: mine.yaml"))
    predicted = json.loads(fine(command("simulate", "my.yaml", "--json")))
    assert predicted["accuracy"] > 0.9
    fine(command("run", "my.yaml", *FEWER, "--set", "strategy.name=synchronous", "--out", "real", "--quiet"))
    fine(
        command(
            "simulate", "my.yaml", *FEWER, "--set", "strategy.name=synchronous", "--out", "same", "--quiet"
        )
    )
    assert np.array_equal(*(np.load(f"{folder}/parameters.npy") for folder in ("real", "same")))
    assert "bit for bit" in fine(command("simulate", "--replay", "real"))
    fine(command("validate", "my.yaml", *FEWER, "--json"))
    names = "sweep={strategy.name: [downpour, synchronous]}"
    fine(command("sweep", "my.yaml", *FEWER, "--set", names, "--jobs", "1", "--out", "sweep"))
    fine(command("report", "sweep", "--no-why"))  # that is tried with another model of a user's
    both = ("--strategy", "downpour", "--strategy", "synchronous")
    found = fine(command("recommend", "my.yaml", *FEWER, *both,
                         "--budget", "2", "--jobs", "1", "--json"))  # fmt: skip
    assert json.loads(found)
