"""The shipped trace of preemptions: what docs/faults.md says of it."""

import re
from pathlib import Path

import pytest

import lockstep
from benchmarks.bamboo import hosts
from tests.support import ROOT

BAMBOO = "faults/bamboo-p3"


@pytest.mark.slow
def test_the_pages_numbers_are_those_of_a_simulation() -> None:
    text = (ROOT / "docs" / "faults.md").read_text("utf-8")
    told = {word: float(rate) for word, rate in re.findall(r"^\| `?(\w+)[^|]*\| (\d+\.\d) \|", text, re.M)}
    changes = {
        "never": "cluster.faults=[]",
        **{word: f"recovery.on_failure={word}" for word in ("restart", "spare")},
    }
    for word, change in changes.items():
        metrics = lockstep.simulate(lockstep.load(BAMBOO, [change])).metrics
        assert metrics["goodput"] == pytest.approx(told[word], abs=0.051)
        assert metrics["failures"] == (0 if word == "never" else 57)
        if word == "restart":  # what is computed twice, and nothing else, is lost
            assert metrics["lost_samples"] / (metrics["throughput"] * metrics["duration_s"]) < 0.1


@pytest.mark.nightly
def test_the_other_trace_has_the_numbers_of_the_page() -> None:
    text = (ROOT / "docs" / "faults.md").read_text("utf-8")
    told = re.search(r"never preempted (\S+) samples/s, `restart` (\S+) .*, `spare` (\S+) ", text)
    assert told
    changes = ("cluster.faults=[]", "recovery.on_failure=restart", "recovery.on_failure=spare")
    for change, rate in zip(changes, told.groups(), strict=True):
        metrics = lockstep.simulate(lockstep.load("faults/bamboo-g4dn", [change])).metrics
        assert metrics["goodput"] == pytest.approx(float(rate), abs=0.051)


def test_a_trace_of_bamboos_becomes_one_of_hosts(tmp_path: Path) -> None:
    """The oldest free instance takes a place, 45 s after it has come."""
    trace = tmp_path / "trace.csv"
    trace.write_text("0,add,a\n0,add,b\n0,add,c\n50000,remove,a\n60000,remove,b\n70000,add,d\n80000,add,e\n")
    assert [*hosts(trace, 2, 0.0)] == [(50, 0, "down"), (50, 0, "up"), (60, 1, "down"), (115, 1, "up")]
    assert [*hosts(trace, 2, 55.0)] == [(5, 1, "down"), (60, 1, "up")]


def test_each_host_goes_and_comes_by_turns() -> None:
    (item,) = lockstep.load(BAMBOO).cluster.faults
    changes = item.changes
    assert len({at for at, _, up in changes if not up and at < 36600}) == 57
    assert {host for _, host, _ in changes} == set(range(16))
