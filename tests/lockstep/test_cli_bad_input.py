"""The command line refuses bad input: one line, status 2, nothing written."""
# ruff: noqa: E501  (a case is a line)

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import COMMAND, Ended, Lockstep
from tests.support.commands import HANGS
from tests.support.scenarios import SIZES

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
        ["simulate", "quickstart", "--set", "cluster.workers=2000", "--set", "workload.model=mlp"],
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
        ("to nowhere", "No such file"),
    ],
)
def test_an_out_that_cannot_be_written(
    command: Lockstep, folder: Path, verb: str, out: str, reason: str
) -> None:
    (folder / "to nowhere").symlink_to("nowhere/at/all")
    before = sorted(folder.rglob("*"))
    ended = command(verb, "good.yaml", "--out", out)
    refused(ended, reason)
    assert f"--out: cannot write to '{out}'" in ended.err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_out_without_permission(command: Lockstep, folder: Path) -> None:
    (folder / "locked").mkdir(mode=0o500)
    refused(command("simulate", "good.yaml", "--out", "locked/out"), "Permission denied")


@pytest.mark.slow
def test_bad_input_to_a_real_process(folder: Path) -> None:
    arguments = [*COMMAND, "simulate", "good.yaml", "--set", "strategy=nosuch", "--out", "out"]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=HANGS, check=False)
    refused(Ended(ended.returncode, ended.stdout, ended.stderr), "unknown strategy 'nosuch'")
    assert not (folder / "out").exists()
