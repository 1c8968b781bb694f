"""Splits that cannot be: one message, which says where, what and what would do."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from lockstep import ScenarioError, scenarios
from lockstep.job.plan import Plan
from tests.support.pipelines import sized

BAD: list[tuple[dict[str, Any], str, str]] = [
    (
        {"parallelism": {"pipeline": 3}},
        "parallelism.pipeline",
        "must divide cluster.workers (4): 1, 2 or 4; not 3",
    ),
    (
        {"parallelism": {"pipeline": 2, "tensor": 3}},
        "parallelism.tensor",
        "pipeline × tensor must divide cluster.workers (4): 1, 2 or 4; not 2 × 3",
    ),
    ({"parallelism": {"tensor": 4, "redundancy": 3}}, "parallelism.redundancy", "must divide tensor (4)"),
    ({"parallelism": {"sequence": True}}, "parallelism.sequence", "needs layers that are cut"),
    (
        {"parallelism": {"pipeline": 7}, "cluster": {"workers": 360}},
        "parallelism.pipeline",
        "must divide cluster.workers (360): such as 6 or 8; not 7",
    ),
    (
        {"parallelism": {"pipeline": 2, "micro_batches": 3}},
        "parallelism.micro_batches",
        "must divide workload.batch_size (8): 1, 2, 4 or 8; not 3",
    ),
    (
        {"parallelism": {"pipeline": 3}, "cluster": {"workers": 3}},
        "parallelism.micro_batches",
        "must divide workload.batch_size (8): 1, 2, 4 or 8; not 3, as many as stages because it is not given",
    ),
    (
        {"parallelism": {"pipeline": 4, "order": "interleaved"}, "workload": {"batch_size": 6}},
        "parallelism.micro_batches",
        "must divide workload.batch_size (6), not 4, as many as stages because it is not given; no number "
        "would do here: change workload.batch_size",
    ),
    ({"parallelism": {"pipeline": 2, "chunks": 2}}, "parallelism.chunks", "only the order interleaved"),
    (
        {"parallelism": {"pipeline": 4, "order": "interleaved", "chunks": 2, "micro_batches": 2}},
        "parallelism.micro_batches",
        "must be a multiple of the 4 stages for the order interleaved: 4 or 8; not 2",
    ),
    ({"parallelism": {"pipeline": 4}, "workload": {"layers": 3}}, "parallelism.pipeline", "at most 3"),
    (
        {"parallelism": {"pipeline": 2, "order": "interleaved", "chunks": 3}, "workload": {"layers": 5}},
        "parallelism.chunks",
        "must be at most 2, not 3: there are 5 layers, and pipeline × chunks = 2 × 3 makes 6 pieces",
    ),
    (
        {"parallelism": {"pipeline": 4, "order": "interleaved", "chunks": 3}, "workload": {"layers": 3}},
        "parallelism.pipeline",
        "must be at most 3, as many as there are layers, not 4",
    ),
    (
        {"parallelism": {"pipeline": 2, "cut": [1, 2]}},
        "parallelism.cut",
        "must list 1 layer number: the first layer of each piece but the first (2 pieces); not 2",
    ),
    (
        {"parallelism": {"pipeline": 4, "cut": [1, 2]}},
        "parallelism.cut",
        "must list 3 layer numbers: the first layer of each piece but the first (4 pieces); not 2",
    ),
    ({"parallelism": {"cut": [1]}}, "parallelism.cut", "must be left out: the model is in one piece"),
    (
        {"parallelism": {"pipeline": 4, "cut": [3, 2, 1]}, "workload": {"layers": 24}},
        "parallelism.cut",
        "must be numbers of layers that rise, from 1 to 23, not [3, 2, 1]",
    ),
    *(
        (
            {"parallelism": {"pipeline": 2, "cut": cut}},
            "parallelism.cut",
            "must be {by: flops | parameters | time | memory} or a list of layer numbers, from 1 on, that "
            f"rise; not {shown}",
        )
        for cut, shown in [([0], "a list with 0"), (["a"], "a list with 'a'"), (2, "2"), ("time", "'time'")]
    ),
    (
        {"parallelism": {"pipeline": 2, "cut": {}}},
        "parallelism.cut.by",
        "missing; give flops, parameters, time",
    ),
    ({"parallelism": {"pipeline": 2, "cut": {"by": "size"}}}, "parallelism.cut.by", "size"),
    *(
        (
            {"parallelism": {"pipeline": 2, "axes": axes}},
            "parallelism.axes",
            "must list tensor, pipeline and data, each once, innermost first, such as "
            f"[tensor, pipeline, data]; not {shown}",
        )
        for axes, shown in [
            (["data", "data", "tensor"], "[data, data, tensor]"),
            (["pipeline", "data"], "[pipeline, data]"),
            (["tensor", "pipeline", 3], "[tensor, pipeline, 3]"),
            ("data", "'data'"),
        ]
    ),
    ({"parallelism": {"pipeline": 2, "order": "dualpipe"}}, "parallelism.order", "dualpipe"),
    ({"parallelism": {"stages": 2}}, "parallelism.stages", "unknown key; did you mean 'pipeline'?"),
    (
        {"parallelism": {"microbatches": 2}},
        "parallelism.microbatches",
        "unknown key; did you mean 'micro_batches'?",
    ),
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
    (
        {"strategy": "pipedream-2bw", "parallelism": {"pipeline": 2, "chunks": 2}},
        "parallelism.chunks",
        "must be 1 with pipedream-2bw, not 2",
    ),
    ({"strategy": "hogwild"}, "parallelism.pipeline", "share one memory"),
    (
        {"strategy": "pipedream"},
        "parallelism.micro_batches",
        "must be 1: pipedream does not cut a mini-batch; not 4",
    ),
    (
        {"strategy": "pipedream-2bw", "parallelism": {"pipeline": 4, "micro_batches": 2}},
        "parallelism.micro_batches",
        "must be at least as many as the 4 stages with pipedream-2bw: 4 or 8; not 2",
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
    return Plan.of(scenarios.load(file, check=Plan.of))


@pytest.mark.parametrize(("changes", "key", "words"), BAD, ids=lambda value: str(value)[:60])
def test_what_cannot_be_split_so_is_told(
    changes: dict[str, Any], key: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError) as told:
        planned(tmp_path / "scenario.yaml", changes)
    assert told.value.key == key
    assert words in told.value.problem
    assert "more problem" not in told.value.problem
    assert told.value.line is not None


def test_an_empty_section_is_todays_run(tmp_path: Path) -> None:
    assert not planned(tmp_path / "scenario.yaml", {"parallelism": {}}).stages
