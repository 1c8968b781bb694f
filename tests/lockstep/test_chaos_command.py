"""`lockstep chaos` as a command: its options, and how it ends."""

import json
from pathlib import Path

import pytest

from lockstep.studies.chaos import Trial, drawn
from tests.support.command_line import Lockstep, fine


def test_simulated_runs(command: Lockstep, sizes_only: Path) -> None:
    ended = command("chaos", sizes_only, "--simulated", 4, "--seed", 2, "--json")
    found = json.loads(fine(ended))
    assert {key: found[key] for key in ("runs", "broken")} == {"runs": 4, "broken": []}
    assert json.loads(fine(command("chaos", sizes_only, "--simulated", 4, "--seed", 2, "--json"))) == found
    assert fine(command("chaos", sizes_only, "--simulated", 1)).startswith("1 run, struck ")
    table = fine(command("chaos", sizes_only, "--simulated", 2, "--csv")).splitlines()
    assert len(table) == 3
    assert table[0].startswith("number,struck,end,")


def test_a_run_that_does_not_end_well_makes_the_exit_status_3(
    command: Lockstep, sizes_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck, wrong = ("worker 1 at 2 s",), ("it does not add up",)
    trials = [Trial(number, struck, "broken", "", wrong, 1.0) for number in range(12)]
    monkeypatch.setattr(drawn, "trials", lambda scenario, seed: iter(trials))
    ended = command("chaos", sizes_only, "--simulated", 12)
    assert ended.status == 3
    assert "12  did not end well" in ended.out
    assert "run 9: it does not add up\n    worker 1 at 2 s" in ended.out
    assert "run 10" not in ended.out  # ten are enough
    ended = command("chaos", sizes_only, "--simulated", 12, "--json")
    assert ended.status == 3
    assert len(json.loads(ended.out)["broken"]) == 12


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--mtbf", "5 m/s"), "--mtbf: "),
        (("--for", "soon"), "--for: "),
        (("--mtbf", "0 s"), "--mtbf: '0 s' is out of range; must be above 0"),
        (("--for", "-1 s"), "--for: "),
        (("--simulated", "0"), "--simulated"),
    ],
)
def test_what_makes_no_sense_is_told(
    options: tuple[str, str], said: str, command: Lockstep, sizes_only: Path
) -> None:
    ended = command("chaos", sizes_only, *options)
    assert ended.status == 2
    assert said in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.real
@pytest.mark.alone
def test_real_runs_for_a_while(command: Lockstep, sizes_only: Path) -> None:
    more = "recovery={on_failure: restart, checkpoint: {every: 5 updates}}", "cluster.detect=200 ms"
    changes = [word for each in more for word in ("--set", each)]
    ended = command("chaos", sizes_only, *changes, "--mtbf", "500 ms", "--for", "2 s", "--json")
    found = json.loads(fine(ended))
    assert found["runs"] == sum(found["ends"].values()) >= 1
    assert found["broken"] == []
