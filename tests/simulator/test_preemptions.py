"""The shipped trace of preemptions: what docs/faults.md says of it."""

import re

import pytest

import lockstep
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


def test_each_host_goes_and_comes_by_turns() -> None:
    (item,) = lockstep.load(BAMBOO).cluster.faults
    changes = item.changes
    assert len({at for at, _, up in changes if not up and at < 36600}) == 57
    assert {host for _, host, _ in changes} == set(range(16))
