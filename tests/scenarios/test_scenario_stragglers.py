"""Every bad straggler, trace or number of cores is one message: line, key, and what would be valid."""
# ruff: noqa: E501  (a case is a line)

import re
from pathlib import Path

import pytest

from lockstep.scenarios import Scenario, ScenarioError, dump, load
from tests.support import ROOT

GOOD = """\
name: good
cluster:
  workers: 16
  workers_per_host: 4
  cores_per_host: 8
  compute: {time: {distribution: constant, value: 30 ms}, backward: 0.67}
  stragglers:
    - {worker: 3, slowdown: 3}
    - {slowdown: 10, probability: 0.02}
    - {host: 1, slowdown: 4, spells: {every: 30 s, last: 5 s}}
    - {rack: 0, slowdown: 2, period: 60 s, busy: 10 s, offset: 5 s}
    - {worker: 2, trace: slow.csv, repeat: 100 s}
workload: {parameters: 1000}
strategy: asynchronous
stop: {steps: 10}
"""
TRACES = {
    "slow.csv": "0, 1\n12.5, 3\n20, 1\n",
    "late.csv": "1, 2\n",
    "twice.csv": "0, 1\n5, 2\n5, 3\n",
    "back.csv": "0, 1\n5, 2\n\n4, 3\n",
    "word.csv": "seconds, slowdown\n0, 1\n",
    "three.csv": "0, 1\n1, 2, 3\n",
    "zero.csv": "0, 1\n1, 0\n",
    "huge.csv": "0, 1e7\n",
    "nan.csv": "0, 1\nnan, 2\n",
    "before.csv": "-1, 2\n",
    "void.csv": "\n",
}
S = "cluster.stragglers"
EDITS = [
    ("cores_per_host: 8", "cores_per_host: 0", 5, "cluster.cores_per_host", "must be at least 1, not 0"),
    ("cores_per_host: 8", "cores_per_host: 1.5", 5, "cluster.cores_per_host", "must be a whole number"),
    ("backward: 0.67", "backward: 1", 6, "cluster.compute.backward", "must be less than 1"),
    ("backward: 0.67", "backward: -0.1", 6, "cluster.compute.backward", "must be at least 0"),
    ("backward: 0.67", "backward: 20 ms", 6, "cluster.compute.backward", "must be a number, not '20 ms'"),
    # whom
    ("worker: 3,", "worker: 16,", 8, f"{S}[0].worker", "must be less than cluster.workers (16), not 16"),
    ("worker: 3,", "host: 4,", 8, f"{S}[0].host", "no worker is there; hosts with workers are 0 to 3"),
    ("rack: 0", "rack: 7", 11, f"{S}[3].rack", "no worker is there; racks with workers are 0 to 0"),
    ("worker: 2,", "worker: 99,", 12, f"{S}[4].worker", "must be less than cluster.workers (16), not 99"),
    ("worker: 3,", "worker: 3, host: 0,", 8, f"{S}[0].host", "give at most one of worker, host, rack, not worker and host"),
    ("host: 1,", "host: -1,", 10, f"{S}[2].host", "must be at least 0"),
    ("host: 1,", "host: one,", 10, f"{S}[2].host", "must be a whole number, not 'one'"),
    ("worker: 3,", "", 8, f"{S}[0].worker", "missing; give the worker's number from 0, such as 'worker: 3', or host or rack"),
    ("- {slow", "- {worker: 3, slowdown: 2}\n    - {slow", 9, f"{S}[1].worker", "worker 3 is listed twice; keep one"),
    ("- {slow", "- {host: 2, slowdown: 2}\n    - {host: 2, slowdown: 3}\n    - {slow", 10, f"{S}[2].host", "host 2 is listed twice"),
    # how
    ("- {worker: 3, slowdown: 3}", "- 3", 8, f"{S}[0]", "must be a mapping such as {worker: 3, slowdown: 3}, not 3"),
    ("worker: 3, slowdown: 3", "worker: 3", 8, f"{S}[0].slowdown", "missing; give how many times as long it takes, such as"),
    ("worker: 3, slowdown: 3", "worker: 3, slowdown: 1e7", 8, f"{S}[0].slowdown", "must be at most 1000000, not 10000000.0"),
    ("slowdown: 10,", "slowdown: -1,", 9, f"{S}[1].slowdown", "must be at least 0.000001, not -1"),
    ("probability", "probabilty", 9, f"{S}[1].probabilty", "unknown key; did you mean 'probability'?"),
    ("probability: 0.02", "probability: 0", 9, f"{S}[1].probability", "must be greater than 0"),
    ("probability: 0.02", "probability: 1.1", 9, f"{S}[1].probability", "must be at most 1"),
    ("probability: 0.02", "probability: 2 %", 9, f"{S}[1].probability", "must be a number, not '2 %'"),
    ("probability: 0.02", "probability: 0.1, period: 1 s", 9, f"{S}[1]", "give one of probability, spells, period and trace, not probability, period"),
    ("every: 30 s, ", "", 10, f"{S}[2].spells.every", "missing; give a duration with its unit"),
    ("every: 30 s", "every: 30", 10, f"{S}[2].spells.every", "30 has no unit; write a duration"),
    ("last: 5 s", "last: 0 s", 10, f"{S}[2].spells.last", "must be above 0"),
    ("spells: {every: 30 s, last: 5 s}", "spells: 5 s", 10, f"{S}[2].spells", "must be a mapping (keys: every, last)"),
    ("period: 60 s, ", "", 11, f"{S}[3].period", "missing; give a duration with its unit"),
    ("busy: 10 s, ", "", 11, f"{S}[3].busy", "missing; give a duration with its unit"),
    ("busy: 10 s", "busy: 60 s", 11, f"{S}[3].busy", "must be less than period (60.0 s), not 60.0 s"),
    ("offset: 5 s", "offset: -5 s", 11, f"{S}[3].offset", "must be 0 or more"),
    # traces
    ("trace: slow.csv", "trace: none.csv", 12, f"{S}[4].trace", "cannot read 'none.csv'; give a text file of 'seconds, slowdown', one per line"),
    ("trace: slow.csv", "trace: .", 12, f"{S}[4].trace", "give a text file of 'seconds, slowdown'"),
    ("trace: slow.csv", "trace: 5", 12, f"{S}[4].trace", "must be a string, not 5"),
    ("trace: slow.csv, ", "", 12, f"{S}[4].trace", "missing; give a text file of 'seconds, slowdown' lines"),
    ("trace: slow.csv", "trace: slow.csv, slowdown: 3", 12, f"{S}[4].slowdown", "unknown key (valid: host, rack, repeat, trace, worker)"),
    ("trace: slow.csv", "trace: late.csv", 12, f"{S}[4].trace", "the file begins at 1.0 s; its first line must be at 0 s"),
    ("trace: slow.csv", "trace: twice.csv", 12, f"{S}[4].trace", "the file has 5.0 s after 5.0 s; its times must rise"),
    ("trace: slow.csv", "trace: back.csv", 12, f"{S}[4].trace", "the file has 4.0 s after 5.0 s; its times must rise"),
    ("trace: slow.csv", "trace: word.csv", 12, f"{S}[4].trace", "line 1 of the file is 'seconds, slowdown'; must be seconds and a slowdown (at most 1e9 s; a factor from 1e-06 to 1e+06), such as '12.5, 3'"),
    ("trace: slow.csv", "trace: three.csv", 12, f"{S}[4].trace", "line 2 of the file is '1, 2, 3'; must be"),
    ("trace: slow.csv", "trace: zero.csv", 12, f"{S}[4].trace", "line 2 of the file is '1, 0'; must be"),
    ("trace: slow.csv", "trace: huge.csv", 12, f"{S}[4].trace", "a factor from 1e-06 to 1e+06"),
    ("trace: slow.csv", "trace: nan.csv", 12, f"{S}[4].trace", "line 2 of the file is 'nan, 2'; must be"),
    ("trace: slow.csv", "trace: before.csv", 12, f"{S}[4].trace", "line 1 of the file is '-1, 2'; must be"),
    ("trace: slow.csv", "trace: void.csv", 12, f"{S}[4].trace", "the file is empty; it needs seconds and a slowdown"),
    ("repeat: 100 s", "repeat: 20 s", 12, f"{S}[4].repeat", "must be more than the last time of the trace (20.0 s), not 20.0 s"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TRACES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "good.yaml").write_text(GOOD)
    return tmp_path


@pytest.mark.parametrize(("old", "new", "line", "key", "problem"), EDITS)
def test_one_clear_message(folder: Path, old: str, new: str, line: int, key: str, problem: str) -> None:
    assert GOOD.count(old) == 1 or old.startswith("- {slow")
    (folder / "bad.yaml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ScenarioError) as caught:
        load(folder / "bad.yaml")
    assert (caught.value.key, caught.value.line) == (key, line)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "more problem" not in str(caught.value)


def test_racks_are_those_of_the_topology(folder: Path) -> None:
    racks = "cluster.network.topology={kind: racks, hosts_per_rack: 2}"
    assert load(folder / "good.yaml", [racks, "cluster.stragglers[3].rack=1"])
    with pytest.raises(ScenarioError, match="no worker is there; racks with workers are 0 to 1"):
        load(folder / "good.yaml", [racks, "cluster.stragglers[3].rack=2"])


def test_every_form_is_read_and_written(folder: Path) -> None:
    good = load(folder / "good.yaml")
    kinds = [type(straggler).__name__ for straggler in good.cluster.stragglers]
    assert kinds == ["Persistent", "Occasional", "Spells", "Periodic", "Trace"]
    assert good.cluster.stragglers[4].steps == ((0, 1), (12.5, 3), (20, 1))
    (folder / "again.yaml").write_text(dump(good))
    assert load(folder / "again.yaml") == good


def test_the_example_in_the_documentation_is_one(folder: Path) -> None:
    text = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    (shown,) = [
        block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "probability" in block
    ]
    (folder / "shown.yaml").write_text(shown + GOOD.partition("slow.csv, repeat: 100 s}\n")[2])
    assert load(folder / "shown.yaml").cluster.stragglers == load(folder / "good.yaml").cluster.stragglers


def test_an_override_may_change_one_key(folder: Path) -> None:
    changed = load(
        folder / "good.yaml", ["cluster.stragglers[2].spells.last=1 s", "cluster.cores_per_host=null"]
    )
    assert changed.cluster.stragglers[2].spells.last == 1
    assert changed.cluster.cores_per_host is None


def test_the_json_schema_has_every_form() -> None:
    items = Scenario.model_json_schema()["$defs"]["Cluster"]["properties"]["stragglers"]["items"]
    assert len(items["anyOf"]) == 5
