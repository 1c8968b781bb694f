"""The command line as its users meet it: what it prints, writes and refuses."""
# ruff: noqa: E501  (a case is a line)

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lockstep
from lockstep import cli, terminal
from scenarios import load, shipped
from strategies import STRATEGIES

SIZES = """\
# Nothing is learned here. This sentence is not shown.
name: small
cluster:
  workers: 2
  network: {bandwidth: 1 Gbit/s, latency: 50 us}
  compute: {time: {distribution: exponential, mean: 20 ms}}
workload: {parameters: 1000, batch_size: 8}
strategy: asynchronous
stop: {steps: 6}
seed: 5
"""
LEARNING = SIZES.replace("{parameters: 1000, batch_size: 8}", "{problem: quadratic, batch_size: 8}")
COMMAND = [sys.executable, "-c", "from lockstep.cli import main; main()"]


@dataclass
class Ended:
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str


Lockstep = Callable[..., Ended]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lockstep:
    """Run `lockstep` with these arguments in this process."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["lockstep", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as leave:
            cli.main()
        out, err = capsys.readouterr()
        return Ended(int(leave.value.code or 0), out, err)

    return run


@pytest.fixture
def sizes_only(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SIZES)
    return path


@pytest.fixture
def learning(tmp_path: Path) -> Path:
    path = tmp_path / "learning.yaml"
    path.write_text(LEARNING)
    return path


def fine(ended: Ended) -> str:
    assert ended.status == 0, ended.err
    return ended.out


# --- --json: DESIGN §5 --------------------------------------------------------------------------------------

NULL = type(None)
KEYS: dict[str, Any] = {
    "schema": int, "engine": str, "scenario": str, "seed": int, "workers": int, "strategy": str,
    "duration_s": float, "updates": int, "updates_per_s": float, "samples": int, "throughput": float,
    "dropped": int,
    "staleness": {"mean": float, "p50": int, "p99": int, "max": int, "histogram": dict},
    "speedup": float, "efficiency": float, "bytes_sent": int,
    "breakdown": {"compute": float, "network": float, "wait": float},
    "breakdown_by_worker": {"compute": list, "send": list, "network": list, "wait": list},
    "utilisation": (dict, NULL), "bottleneck": str,
    "loss": float, "accuracy": float, "target": float, "time_to_target_s": float,
    "parameters_sha256": str, "warnings": list,
}  # fmt: skip
LEARNED = ("loss", "accuracy", "target", "time_to_target_s", "parameters_sha256")


def check_types(found: dict[str, Any], expected: dict[str, Any], null: tuple[str, ...] = ()) -> None:
    assert list(found) == list(expected)
    for key, kind in expected.items():
        if isinstance(kind, dict):
            check_types(found[key], kind)
        elif key in null:
            assert found[key] is None, key
        else:
            assert type(found[key]) in (kind if isinstance(kind, tuple) else (kind,)), key


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


def test_json_is_alone_on_the_standard_output_of_a_process(sizes_only: Path) -> None:
    ended = subprocess.run(
        [*COMMAND, "simulate", sizes_only, "--json"], capture_output=True, text=True, timeout=60, check=True
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
    assert terminal.size(nbytes) == text


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
        return shown.decode(), process.wait(timeout=60)


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


def test_a_scenario_is_listed_with_its_first_sentence(sizes_only: Path, tmp_path: Path) -> None:
    assert terminal.first_comment(sizes_only) == "Nothing is learned here."
    broken = tmp_path / "broken.yaml"
    broken.write_text("# A sentence\n# over two lines. Another.\nname: x\n# not this\n")
    assert terminal.first_comment(broken) == "A sentence over two lines."
    broken.write_text("name: x\n# not this\n")
    assert terminal.first_comment(broken) == ""


def test_strategies(command: Lockstep) -> None:
    listed = json.loads(fine(command("strategies", "--json")))
    assert list(listed) == list(STRATEGIES)
    assert listed["downpour"]["communication_window"] == 5
    text = fine(command("strategies"))
    assert re.search(r"^downpour +local steps, .*\n +communication_window=5, ", text, re.M)


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


# --- bad input ----------------------------------------------------------------------------------------------

BAD: dict[str, tuple[list[str], str]] = {  # arguments, and what the message says
    "unknown command": (["frobnicate"], "no such command 'frobnicate'"),
    "a near command": (["simulat", "FILE"], "Did you mean 'simulate'?"),
    "unknown option": (["simulate", "FILE", "--bogus"], "no such option: --bogus"),
    "option of all": (["--version-of-what"], "no such option"),
    "no file": (["simulate"], "missing argument 'FILE' (see 'lockstep simulate --help')"),
    "two files": (["simulate", "FILE", "FILE"], "unexpected extra argument"),
    "flag with a value": (["simulate", "FILE", "--json=yes"], "does not take a value"),
    "out without a value": (["simulate", "FILE", "--out"], "requires an argument"),
    "missing file": (["simulate", "nosuch.yaml"], "nosuch.yaml: no such file"),
    "near a shipped name": (["simulate", "quikstart"], "shipped scenarios: quickstart"),
    "a directory": (["simulate", "DIR"], "s a directory; give a scenario file"),
    "binary": (["simulate", "DIR/binary"], "not UTF-8"),
    "empty": (["simulate", "DIR/empty"], "the file is empty"),
    "a list": (["simulate", "DIR/list"], "must be a mapping"),
    "not YAML": (["simulate", "DIR/broken"], ": not valid YAML"),
    "unknown strategy": (["simulate", "FILE", "--set", "strategy=dwnpour"], "did you mean 'downpour'?"),
    "unknown to validate": (["validate", "FILE", "--strategy", "downpoor"], "did you mean 'downpour'?"),
    "its parameter": (["simulate", "FILE", "--set", "strategy.larning_rate=1"], "did you mean 'learning_rate'?"),
    "window 0": (["run", "FILE", "--set", "strategy={name: downpour, communication_window: 0}"], "0 is not"),
    "bad type": (["simulate", "FILE", "--set", "cluster.workers=many"], "must be a whole number, not 'many'"),
    "no unit": (["simulate", "FILE", "--set", "cluster.network.latency=5"], "5 has no unit"),
    "zero workers": (["simulate", "FILE", "--set", "cluster.workers=0"], "must be at least 1, not 0"),
    "unknown key": (["simulate", "FILE", "--set", "cluster.wrokers=2"], "did you mean 'workers'?"),
    "set without =": (["simulate", "FILE", "--set", "cluster.workers"], "has no '='; write key=value"),
    "set of no key": (["simulate", "FILE", "--set", "=4"], "is not a key"),
    "set of bad YAML": (["simulate", "FILE", "--set", "stop={steps"], "not valid YAML"),
    "the last set is bad": (["simulate", "FILE", "--set", "seed=1", "--set", "seed=-1"], "--set seed=-1: seed"),
    "unknown model": (["simulate", "quickstart", "--set", "workload.model=resnt18"], "resnet18"),
    "measured": (["simulate", "FILE", "--set", "cluster.compute=measured"], "exist only in a real run"),
    "unreachable": (["simulate", "FILE", "--set", "stop={target_accuracy: 0.9}"], "may never be reached"),
    "too many to share": (
        ["run", "quickstart", "--set", "cluster.workers=2000", "--set", "workload.model=mlp"],
        "2000 workers cannot share",
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files good and bad; the good one is `FILE` in arguments, it is `DIR`."""
    (tmp_path / "good.yaml").write_text(SIZES)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "empty").write_text("")
    (tmp_path / "list").write_text("- 1\n- 2\n")
    (tmp_path / "broken").write_text("name: x\ncluster: {workers: 4\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(ended: Ended, message: str) -> None:
    """One line that says what is wrong, and nothing more but which engine was about to start."""
    assert ended.status == 2, ended.err
    assert ended.out == ""
    *before, error = ended.err.splitlines()
    assert all(re.fullmatch(r"(predicting|measuring) .* …", line) for line in before), ended.err
    assert error.startswith("error: ")
    assert message in error


@pytest.mark.parametrize("case", BAD)
def test_bad_input(command: Lockstep, folder: Path, case: str) -> None:
    arguments, message = BAD[case]
    arguments = [part.replace("FILE", "good.yaml").replace("DIR", str(folder)) for part in arguments]
    before = sorted(folder.rglob("*"))
    if arguments[-1] != "--out":
        arguments = [arguments[0], *(["--out", "out"] if len(arguments) > 1 else []), *arguments[1:]]
    refused(command(*arguments), message)
    assert sorted(folder.rglob("*")) == before  # nothing written


@pytest.mark.parametrize("verb", ["simulate", "run", "validate"])
@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("good.yaml", "Not a directory"),
        ("good.yaml/below", "Not a directory"),
        ("x" * 300, "too long"),
        ("/proc/nothing/here", "No such file"),
        ("/dev/null", "Not a directory"),
    ],
)
def test_an_out_that_cannot_be_written(
    command: Lockstep, folder: Path, verb: str, out: str, reason: str
) -> None:
    before = sorted(folder.rglob("*"))
    ended = command(verb, "good.yaml", "--out", out)
    refused(ended, reason)
    assert f"--out: cannot write to '{out}'" in ended.err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_out_without_permission(command: Lockstep, folder: Path) -> None:
    (folder / "locked").mkdir(mode=0o500)
    refused(command("simulate", "good.yaml", "--out", "locked/out"), "Permission denied")


def test_bad_input_to_a_real_process(folder: Path) -> None:
    arguments = [*COMMAND, "simulate", "good.yaml", "--set", "strategy=nosuch", "--out", "out"]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    refused(Ended(ended.returncode, ended.stdout, ended.stderr), "unknown strategy 'nosuch'")
    assert not (folder / "out").exists()


# --- runs that fail -----------------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[..., Any]:
    def engine(*_: Any, **__: Any) -> Any:
        raise error

    return engine


def test_a_simulation_that_fails(
    command: Lockstep, sizes_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simulator import engine

    error = engine.SimulationError("the nodes wait for each other for ever")
    monkeypatch.setattr(engine, "simulate", raising(error))
    ended = command("simulate", sizes_only, "--json", "--out", tmp_path / "out")
    assert (ended.status, ended.out) == (3, "")
    assert ended.err == "error: the nodes wait for each other for ever\n"
    assert not (tmp_path / "out").exists()


@pytest.fixture
def some_records(sizes_only: Path) -> pd.DataFrame:
    return lockstep.simulate(lockstep.load(sizes_only)).records.head(5)


def test_a_run_that_fails_keeps_what_was_measured(
    command: Lockstep,
    learning: Path,
    tmp_path: Path,
    some_records: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from executor import launch

    out = tmp_path / "out"
    fine(command("simulate", learning, "--out", out))
    error = launch.RunFailed("worker 1 (rank 1) died: it was tired", some_records, "Traceback …\n")
    monkeypatch.setattr(launch, "execute", raising(error))
    ended = command("run", learning, "--quiet", "--out", out, "--set", "seed=77")
    assert (ended.status, ended.out) == (3, "")
    assert ended.err.splitlines() == [
        f"What was measured until then: {out / 'records.parquet'}",
        "Traceback …",
        "error: worker 1 (rank 1) died: it was tired",
    ]
    assert {path.name for path in out.iterdir()} == {"scenario.yaml", "records.parquet"}
    assert len(pd.read_parquet(out / "records.parquet")) == 5
    assert load(out / "scenario.yaml").seed == 77


def test_an_interrupted_run(
    command: Lockstep,
    sizes_only: Path,
    tmp_path: Path,
    some_records: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from executor import launch

    out = tmp_path / "out"
    monkeypatch.setattr(launch, "execute", raising(launch.RunInterrupted(some_records)))
    ended = command("run", sizes_only, "--quiet", "--out", out)
    assert (ended.status, ended.out) == (130, "")
    assert ended.err.splitlines()[-1] == "error: interrupted"
    assert len(pd.read_parquet(out / "records.parquet")) == 5


def test_a_full_disk_is_one_line(
    command: Lockstep, sizes_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(28, "No space left on device", "records.parquet")
    monkeypatch.setattr(pd.DataFrame, "to_parquet", raising(error))
    ended = command("simulate", sizes_only, "--quiet", "--out", tmp_path / "out")
    assert (ended.status, ended.out) == (3, "")
    assert ended.err == "error: records.parquet: No space left on device\n"


def test_a_bug_is_not_dressed_up(sizes_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simulator import engine

    monkeypatch.setattr(engine, "simulate", raising(RuntimeError("a bug")))
    monkeypatch.setattr(sys, "argv", ["lockstep", "simulate", str(sizes_only)])
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main()


# --- validate -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loopback() -> Iterator[None]:
    """A loopback measured by somebody else: it takes seconds, and other tests look at it."""
    from lockstep import validation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "measure_loopback", lambda parameters: validation.Loopback(1e-4, 1e9))
        yield


ERRORS = {
    "throughput", "duration_s", "updates_per_s", "speedup", "loss", "time_to_target_s", "staleness_mean",
    "staleness_ks",
}  # fmt: skip


@pytest.mark.usefixtures("loopback")
def test_validate_json(command: Lockstep, learning: Path) -> None:
    ended = command("validate", learning, "--json")
    found = json.loads(fine(ended))
    assert ended.err == ""
    assert list(found) == ["predicted", "measured", "error"]
    for side, engine in (("predicted", "simulator"), ("measured", "executor")):
        check_types(found[side], KEYS, null=("accuracy", "target", "time_to_target_s"))
        assert found[side]["engine"] == engine
    error = found["error"]
    assert set(error) == ERRORS
    a, b = found["predicted"]["throughput"], found["measured"]["throughput"]
    assert error["throughput"] == pytest.approx((a - b) / b)
    assert 0 <= error["staleness_ks"] <= 1
    assert error["time_to_target_s"] is None


@pytest.mark.usefixtures("loopback")
def test_an_interrupted_validate_keeps_what_it_has(
    command: Lockstep, learning: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lockstep.run

    def run(scenario: lockstep.Scenario, progress: object, *, testbed: bool) -> lockstep.Result:
        if scenario.strategy.name == "all-reduce":
            raise KeyboardInterrupt
        return real(scenario)

    monkeypatch.setattr("lockstep.run", run)
    out = tmp_path / "out"
    ended = command(
        "validate", learning, "--strategy", "synchronous", "--strategy", "all-reduce", "--out", out
    )
    assert ended.status == 130
    assert (out / "synchronous" / "measured" / "result.json").exists()
    assert (out / "all-reduce" / "predicted" / "result.json").exists()
    assert len(json.loads((out / "validation.json").read_text())["points"]) == 1


@pytest.mark.usefixtures("loopback")
def test_validate_several_strategies(command: Lockstep, learning: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = "synchronous", "all-reduce"
    flags = [part for name in (*names, names[0]) for part in ("--strategy", name)]
    text = fine(command("validate", learning, *flags, "--out", out))
    assert text.startswith("Predicting for this machine's loopback, measured just now: a message costs ")
    files = {"validation.png", "validation.svg", "validation.json"}
    assert {path.name for path in out.iterdir()} == {*files, *names}
    for name in names:
        for side in ("predicted", "measured"):
            kept = {path.name for path in (out / name / side).iterdir()}
            own = "utilisation.parquet" if side == "predicted" else "interleaving.parquet"
            assert kept == {"scenario.yaml", "result.json", "records.parquet", "parameters.npy", own}
            assert load(out / name / side / "scenario.yaml").strategy.name == name
    points = json.loads((out / "validation.json").read_text())["points"]
    assert [point["predicted"]["strategy"] for point in points] == list(names)
    assert (out / "validation.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "validation.svg").read_text()
