"""Splits that cannot be: one message, which says where, what and what would do."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from lockstep import ScenarioError, scenarios
from lockstep.job.plan import Plan
from tests.support.pipelines import sized

BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"parallelism": {"pipeline": 3}}, "parallelism.pipeline", "must divide cluster.workers"),
    ({"parallelism": {"pipeline": 2, "tensor": 2}}, "parallelism.tensor", "cannot be split yet"),
    ({"parallelism": {"pipeline": 2, "micro_batches": 3}}, "parallelism.micro_batches", "must divide"),
    ({"parallelism": {"pipeline": 2, "chunks": 2}}, "parallelism.chunks", "only the order interleaved"),
    (
        {"parallelism": {"pipeline": 4, "order": "interleaved", "chunks": 2, "micro_batches": 2}},
        "parallelism.micro_batches",
        "multiple of the 4 stages",
    ),
    ({"parallelism": {"pipeline": 4}, "workload": {"layers": 3}}, "parallelism.pipeline", "at most 3"),
    ({"parallelism": {"pipeline": 2, "cut": [1, 2]}}, "parallelism.cut", "must have 1 number"),
    ({"parallelism": {"pipeline": 4, "cut": [3, 2, 1]}}, "parallelism.cut", "increase"),
    ({"parallelism": {"pipeline": 2, "cut": {"by": "size"}}}, "parallelism.cut.by", "size"),
    ({"parallelism": {"pipeline": 2, "axes": ["data", "data", "tensor"]}}, "parallelism.axes", "once"),
    ({"parallelism": {"pipeline": 2, "order": "dualpipe"}}, "parallelism.order", "dualpipe"),
    ({"parallelism": {"stages": 2}}, "parallelism.stages", "unknown key"),
    (
        {"strategy": "pipedream-2bw", "parallelism": {"pipeline": 2, "order": "gpipe"}},
        "parallelism.order",
        "order of its own",
    ),
    (
        {"strategy": "pipedream-2bw", "parallelism": {"pipeline": 2, "order": "interleaved", "chunks": 2}},
        "parallelism.chunks",
        "must be 1",
    ),
    ({"strategy": "hogwild"}, "parallelism.pipeline", "share one memory"),
    ({"strategy": "pipedream"}, "parallelism.micro_batches", "computes a mini-batch in 1"),
    (
        {"strategy": "pipedream-2bw", "parallelism": {"pipeline": 4, "micro_batches": 2}},
        "parallelism.micro_batches",
        "at least as many as the 4 stages",
    ),
    (
        {"cluster": {"servers": {"count": 1, "hierarchy": {"groups": 3}}}, "strategy": "asynchronous"},
        "cluster.servers.hierarchy.groups",
        "at most the 2 replicas",
    ),
]


def planned(file: Path, changes: dict[str, Any]) -> Plan:
    yaml = YAML(typ="safe", pure=True)
    document = yaml.load(scenarios.dump(sized(4)))
    for section, values in changes.items():
        merges = isinstance(values, dict) and section != "parallelism"
        document[section] = document[section] | values if merges else values
    with file.open("w") as stream:
        yaml.dump(document, stream)
    return Plan.of(scenarios.load(file))


@pytest.mark.parametrize(("changes", "key", "words"), BAD, ids=lambda value: str(value)[:60])
def test_what_cannot_be_split_so_is_told(
    changes: dict[str, Any], key: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError) as told:
        planned(tmp_path / "scenario.yaml", changes)
    assert told.value.key == key
    assert words in told.value.problem


def test_an_empty_section_is_todays_run(tmp_path: Path) -> None:
    assert not planned(tmp_path / "scenario.yaml", {"parallelism": {}}).stages
