"""Keys that have a new name are read by the old one too, with a note."""

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep import ScenarioError
from lockstep.scenarios import points
from lockstep.scenarios.renamed import OldKeyWarning
from tests.support.command_line import fine
from tests.support.commands import forked
from tests.support.scenarios import scenario

OLD, NEW = {"schedule": "downpour", "rule": "dynsgd"}, {"worker_loop": "downpour", "correction": "dynsgd"}
NOTE = "strategy.rule is now called strategy.correction; the old name ends with the next release"


def test_a_scenario_with_old_keys_is_the_one_with_the_new() -> None:
    new = scenario(strategy={"name": "asynchronous", **NEW})
    with pytest.warns(OldKeyWarning) as noted:
        old = scenario(strategy={"name": "asynchronous", **OLD})
    assert old == new
    assert [str(each.message) for each in noted][1:] == [NOTE]
    assert "rule" not in old.model_dump()["strategy"]


def test_an_override_counts_by_either_name(tmp_path: Path) -> None:
    given = [("rule", "correction"), ("correction", "rule"), ("rule", "rule"), ("correction", "correction")]
    for in_file, set_ in given:
        file = tmp_path / "one.yaml"
        file.write_text(_text(f"{{name: asynchronous, {in_file}: dynsgd}}"))
        with _noted({in_file, set_}):
            found = lockstep.load(file, [f"strategy.{set_}=staleness-aware"])
        assert found.strategy.parameters == {"correction": "staleness-aware"}


def test_a_sweep_has_the_new_names(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    sweep = "sweep: {strategy.rule: [dynsgd], zip: {strategy.schedule: [agn], seed: [1]}}"
    file.write_text(_text("{name: asynchronous, correction: dc-asgd}") + sweep)
    with pytest.warns(OldKeyWarning):
        found, each = points(file)
    assert [changes for changes, _ in each] == [
        {"strategy.correction": "dynsgd", "strategy.worker_loop": "agn", "seed": 1}
    ]
    assert each[0][1].strategy.parameters == {"worker_loop": "agn", "correction": "dynsgd"}
    assert "strategy.correction" in found.sweep


def test_a_mistake_is_at_the_line_of_the_old_key(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(_text("\n  name: asynchronous\n  rule: dcasgd"))
    with pytest.warns(OldKeyWarning), pytest.raises(ScenarioError, match="did you mean 'dc-asgd'") as caught:
        lockstep.load(file)
    assert f"{file}:6" in str(caught.value)


def _text(strategy: str) -> str:
    compute = "{time: {distribution: constant, value: 10 ms}}"
    return f"""name: one
cluster: {{workers: 2, compute: {compute}}}
workload: {{parameters: 1000}}
strategy: {strategy}
stop: {{steps: 2}}
"""


def _noted(keys: set[str]) -> AbstractContextManager[Any]:
    return pytest.warns(OldKeyWarning, match=NOTE) if "rule" in keys else nullcontext()


@pytest.mark.real
def test_the_command_says_so_in_a_line(tmp_path: Path) -> None:
    given = ("strategy=asynchronous", "strategy.rule=dc-asgd", "stop={steps: 2}", "sweep={}")
    words = ["simulate", "quickstart", "--json", *(word for each in given for word in ("--set", each))]
    ended = forked(tmp_path, *words)
    assert json.loads(fine(ended))["strategy"] == "asynchronous"
    assert ended.err == f"note: {NOTE}\n"
