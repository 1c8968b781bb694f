"""Scenarios with mistakes of all kinds in them: each is refused with one message, or runs by all laws."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from lockstep.scenarios import shipped
from lockstep.scenarios.document import written
from tests.support import ROOT
from tests.support.mutations import documents, known_keys, texts
from tests.support.nightly import so_many
from tests.support.tried import simulated

QUICK = {"steps": 3, "updates": 12, "time": "100 s"}
ALL = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def read(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def shown() -> list[Any]:
    """What the pages show as YAML."""
    found = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"^```yaml\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            try:
                found.append(read(block))
            except YAMLError:  # several documents, or an ellipsis
                continue
    return found


def quick(document: dict[str, Any]) -> dict[str, Any]:
    """The same with an early end, and without its sweep."""
    return {key: value for key, value in document.items() if key != "sweep"} | {"stop": QUICK}


FILES = [file.read_text("utf-8") for file in shipped().values()]
FAULTY = {
    "name": "faulty",
    "cluster": {
        "workers": 4,
        "servers": 2,
        "workers_per_host": 2,
        "compute": {"time": {"distribution": "exponential", "mean": "30 ms"}},
        "storage": {"write": "1 MB/s", "read": "1 MB/s"},
        "detect": "50 ms",
        "faults": [
            {"worker": 2, "at": "100 ms", "crash": True, "back_after": "300 ms"},
            {"host": 1, "mtbf": "10 s", "back_after": {"distribution": "exponential", "mean": "200 ms"}},
            {"server": 0, "at": "200 ms", "crash": True, "back_after": "100 ms"},
            {"link": {"host": 0, "direction": "both"}, "at": "20 ms", "down_for": "40 ms"},
            {"partition": [[0], [1]], "at": "30 ms", "down_for": "100 ms"},
            {"worker": 3, "at": "15 ms", "hang_for": "80 ms"},
            {"worker": 0, "at": "250 ms", "crash": True, "exits_after": "30 ms", "back_after": "50 ms"},
        ],
    },
    "workload": {"parameters": 1000, "batch_size": 8},
    "strategy": {"name": "asynchronous"},
    "recovery": {"checkpoint": {"every": "3 updates"}, "on_failure": "restart"},
    "stop": {"steps": 12, "time": "100 s"},
}
GOOD = [quick(read(text)) for text in FILES]
GOOD = [*GOOD, *[FAULTY] * (len(GOOD) // 4)]
KNOWN = known_keys([*GOOD, *shown()])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "changed.yaml"


@pytest.mark.slow
@so_many(40, 4000, suppress_health_check=ALL)
@given(documents(GOOD, KNOWN))
def test_changed_keys_and_values(file: Path, document: Any) -> None:
    try:
        text = written(document)
    except (YAMLError, TypeError, ValueError):  # what nobody can write
        assume(False)
    file.write_text(text, "utf-8")
    simulated(file)


@pytest.mark.slow
@so_many(20, 1000, suppress_health_check=ALL)
@given(texts([written(document) for document in GOOD]))
def test_changed_letters_and_lines(file: Path, text: str) -> None:
    file.write_text(text, "utf-8", "surrogatepass")
    simulated(file)
