"""The command line as its users meet it: what it prints and writes."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lockstep import listing, terminal
from lockstep.analysis import words
from lockstep.scenarios import load, shipped
from lockstep.strategies import STRATEGIES
from tests.support.command_line import COMMAND, Lockstep, fine
from tests.support.commands import HANGS
from tests.support.json_keys import KEYS, LEARNED, check_types

# --- --json: DESIGN §5 --------------------------------------------------------------------------------------


def test_json_of_a_run_that_learned_nothing(command: Lockstep, sizes_only: Path) -> None:
    ended = command("simulate", sizes_only, "--json")
    out = fine(ended)
    assert out.count("\n") == 1
    assert ended.err == ""
    found = json.loads(out)
    check_types(found, KEYS, null=LEARNED)
    assert (found["schema"], found["engine"], found["scenario"]) == (1, "simulator", "small")
    assert (found["seed"], found["workers"], found["strategy"]) == (5, 2, "asynchronous")
    assert (found["updates"], found["samples"], found["dropped"]) == (12, 96, 0)
    histogram = found["staleness"]["histogram"]
    assert all(key.isdecimal() and type(count) is int for key, count in histogram.items())
    assert sum(histogram.values()) == 12


def test_json_of_a_run_that_learned(command: Lockstep) -> None:
    overrides = ["workload.model=mlp", "stop={steps: 20, target_accuracy: 0.11}", "workload.batch_size=8"]
    flags = [part for override in overrides for part in ("--set", override)]
    found = json.loads(fine(command("simulate", "quickstart", *flags, "--json")))
    check_types(found, KEYS)
    assert found["target"] == 0.11
    assert 0 < found["time_to_target_s"] <= found["duration_s"]
    assert re.fullmatch("[0-9a-f]{64}", found["parameters_sha256"])


@pytest.mark.slow
def test_json_is_alone_on_the_standard_output_of_a_process(sizes_only: Path) -> None:
    ended = subprocess.run(
        [*COMMAND, "simulate", sizes_only, "--json"],
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=True,
    )
    check_types(json.loads(ended.stdout), KEYS, null=LEARNED)
    assert ended.stderr == ""


# --- --out --------------------------------------------------------------------------------------------------


def test_out_of_a_run_that_learned_nothing(command: Lockstep, sizes_only: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / "too"
    printed = fine(command("simulate", sizes_only, "--out", out, "--json"))
    files = {"scenario.yaml", "result.json", "records.parquet", "utilisation.parquet"}
    assert {path.name for path in out.iterdir()} == files
    assert (out / "result.json").read_text() == printed
    assert load(out / "scenario.yaml") == load(sizes_only)
    records = pd.read_parquet(out / "records.parquet")
    assert records["nbytes"].sum() == json.loads(printed)["bytes_sent"]


def test_out_of_a_run_that_learned(command: Lockstep, learning: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed = json.loads(fine(command("simulate", learning, "--out", out, "--json", "--set", "seed=9")))
    parameters = np.load(out / "parameters.npy")
    assert (parameters.shape, parameters.dtype) == ((20,), np.float32)
    assert printed["seed"] == load(out / "scenario.yaml").seed == 9
    again = json.loads(fine(command("simulate", out / "scenario.yaml", "--json")))
    assert again == printed


def test_out_keeps_nothing_of_an_earlier_run(
    command: Lockstep, learning: Path, sizes_only: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    fine(command("simulate", learning, "--out", out))
    assert (out / "parameters.npy").exists()
    text = fine(command("simulate", sizes_only, "--out", out))
    assert not (out / "parameters.npy").exists()
    assert f"Written to {out}." in text


# --- --set --------------------------------------------------------------------------------------------------


def test_set_changes_the_scenario_and_the_later_one_wins(command: Lockstep, sizes_only: Path) -> None:
    flags = ["cluster.workers=3", "stop={steps: 2}", "cluster.workers=4", "name=other"]
    arguments = [part for flag in flags for part in ("--set", flag)]
    found = json.loads(fine(command("simulate", sizes_only, *arguments, "--json")))
    assert (found["workers"], found["updates"], found["scenario"]) == (4, 8, "other")


def test_a_sweep_that_set_does_not_suit_stops_nothing_but_sweep(
    command: Lockstep, sizes_only: Path, tmp_path: Path
) -> None:
    file = tmp_path / "swept.yaml"
    file.write_text(sizes_only.read_text() + "sweep: {cluster.workers: [2, 4]}\n")
    sets = ["--set", "cluster.workers=4", "--set", "cluster.stragglers=[{worker: 3, slowdown: 2}]"]
    assert json.loads(fine(command("simulate", file, *sets, "--json")))["workers"] == 4
    ended = command("sweep", file, *sets)
    assert ended.status == 2
    assert re.search(
        r"sweep\.cluster\.workers\[0\]: .*; the file's sweep may not suit .* --set sweep={}", ended.err
    )
    assert json.loads(fine(command("sweep", file, *sets, "--set", "sweep={}", "--json")))["runs"] == 1


# --- what people read ---------------------------------------------------------------------------------------


def test_table_of_a_run(command: Lockstep, sizes_only: Path) -> None:
    ended = command("simulate", sizes_only)
    text = fine(ended)
    assert "small: asynchronous, 2 workers" in text
    assert re.search(r"throughput .* samples/s", text)
    assert re.search(r"updates .*12 \(\d+\.?\d*/s\)", text)
    assert "held-out loss" not in text
    assert ended.err == "predicting small …\n"
    assert command("simulate", sizes_only, "--quiet").err == ""


def test_table_says_that_a_target_was_not_reached(command: Lockstep) -> None:
    flags = ["--set", "stop={steps: 2, target_accuracy: 0.99}", "--set", "workload.model=mlp"]
    text = fine(command("simulate", "quickstart", *flags))
    assert re.search(r"time to 99.0% .* not reached", text)


def test_a_run_that_did_nothing_still_has_a_table(command: Lockstep, sizes_only: Path) -> None:
    ended = command("simulate", sizes_only, "--set", "stop={time: 1 us}")
    assert "duration" in fine(ended)
    assert "–" not in ended.out
    assert "warning: asynchronous: the run stopped before the first update" in ended.err


def test_a_name_may_look_like_markup(command: Lockstep, sizes_only: Path) -> None:
    assert "[/b]:smile:[red]: async" in fine(
        command("simulate", sizes_only, "--set", "name='[/b]:smile:[red]'")
    )


def comparison(name: str, warnings: tuple[str, ...] = ()) -> dict[str, Any]:
    metrics = {
        "strategy": name, "throughput": 12345.6, "staleness": {"mean": None}, "loss": 0.25,
        "time_to_target_s": None, "warnings": ["both", *warnings],
    }  # fmt: skip
    error = {"throughput": 0.05, "staleness_mean": None, "loss": -0.5, "time_to_target_s": None}
    return {"predicted": metrics, "measured": {**metrics, "warnings": ["both"]}, "error": error}


def test_comparison_fits_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    monkeypatch.setattr(terminal, "_console", lambda: Console(width=80))
    names = "synchronous", "halving-doubling"
    terminal.show_comparison([comparison(name, ("of the prediction",)) for name in names])
    out, err = capsys.readouterr()
    assert "…" not in out
    assert all(out.count(name) == 2 for name in names)  # throughput and loss; no row without a figure
    assert "12,346" in out
    assert "+5.0%" in out
    assert "-50.0%" in out
    warnings = [f"warning: {name}: {what}" for name in names for what in ("both", "of the prediction")]
    assert err.splitlines() == warnings


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (4100, "4.1 kB"),
        (40_985_504, "40.99 MB"),
        (6.7e10, "67 GB"),
        (2e15, "2,000 TB"),
    ],
)
def test_size(nbytes: float, text: str) -> None:
    assert words.size(nbytes) == text


# --- progress -----------------------------------------------------------------------------------------------


def under_a_terminal(arguments: list[str], columns: int) -> tuple[str, int]:
    """What a command shows on a pseudo-terminal of that width, and its exit status."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "CI")}
    environment["TERM"] = "xterm-256color"
    with subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                some = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not some:
                break
            shown += some
        os.close(ours)
        return shown.decode(), process.wait(timeout=HANGS)


@pytest.mark.slow
def test_progress_is_a_bar_on_a_terminal(sizes_only: Path) -> None:
    arguments = ["simulate", str(sizes_only), "--set", "stop.steps=4000"]
    shown, status = under_a_terminal([*COMMAND, *arguments], 80)
    assert status == 0
    assert "predicting small" in shown
    assert "━" in shown
    assert "\x1b[2K" in shown  # it is redrawn, and gone at the end
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in shown.splitlines()]
    table = lines[next(i for i, line in enumerate(lines) if "┏" in line) :]
    assert all(len(line) <= 80 for line in table)
    assert "predicting" not in "".join(table)


def test_an_error_is_plain_on_a_terminal() -> None:
    shown, status = under_a_terminal([*COMMAND, "simulat"], 80)
    assert status == 2
    assert shown.splitlines() == [
        "error: no such command 'simulat'. Did you mean 'simulate'? (see 'lockstep --help')"
    ]


# --- lists and help -----------------------------------------------------------------------------------------


def test_scenarios(command: Lockstep) -> None:
    listed = json.loads(fine(command("scenarios", "--json")))
    assert list(listed) == list(shipped())
    text = fine(command("scenarios"))
    assert all(re.search(rf"^{name}\b", text, re.M) for name in listed)
    # in groups, what a newcomer needs first first
    heads = re.findall(r"^(\w+).*:\n\n(\S+)", text, re.M)
    assert heads == [
        ("Scenarios", "bert-two-data-centres"),
        ("Models", "pipelines/distbelief"),
        ("Models", "tensor/digits-halo"),
        ("One", "strategies/ad-psgd"),
        ("The", "systems/ako"),
        ("Systems", "systems/published/dmtk-resnet-32-k40m"),
        ("Machines", "faults/bamboo-g4dn"),
        ("What", "claims/adaptive-period"),
        ("Clusters", "eight-gpus"),
        ("Workloads", "bert-base"),
    ]


def test_a_scenario_is_listed_with_its_first_sentence(sizes_only: Path, tmp_path: Path) -> None:
    assert listing.first_comment(sizes_only) == "Nothing is learned here."
    broken = tmp_path / "broken.yaml"
    broken.write_text("# A sentence\n# over two lines. Another.\nname: x\n# not this\n")
    assert listing.first_comment(broken) == "A sentence over two lines."
    broken.write_text("name: x\n# not this\n")
    assert listing.first_comment(broken) == ""


def test_strategies(command: Lockstep) -> None:
    listed = json.loads(fine(command("strategies", "--json")))
    assert list(listed) == list(STRATEGIES)
    assert listed["downpour-blocking"]["communication_window"] == 5
    text = fine(command("strategies"))
    assert re.search(r"^downpour +local steps; .*\n +communication_window=1, ", text, re.M)


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help(command: Lockstep, arguments: tuple[str, ...]) -> None:
    ended = command(*arguments)
    text = fine(ended)
    assert ended.err == ""
    assert text.startswith("Usage: lockstep [OPTIONS] COMMAND")
    for name in ("simulate", "run", "validate", "scenarios", "strategies", "schema", "verify"):
        assert re.search(rf"^  {name} +[A-Z].*\.$", text, re.M), name
    assert "..." not in text.split("Commands:")[1]  # no line is cut short
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("name", ["simulate", "run", "validate"])
def test_help_of_a_command(command: Lockstep, name: str) -> None:
    text = fine(command(name, "--help"))
    for option in ("--set KEY=VALUE", "--out DIR", "--json", "--quiet"):
        assert option in text
