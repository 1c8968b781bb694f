"""An error in YAML names the line on which it was made, not the one on which the parser noticed."""

from pathlib import Path

import pytest

from lockstep.scenarios import ScenarioError, load
from lockstep.scenarios.document import parse

GOOD = """\
name: good
cluster:
  workers: 4
  servers: 1
  network: {bandwidth: 100 Mbit/s, latency: 200 us}
  compute: {time: {distribution: constant, value: 30 ms}}
workload: {parameters: 1000}
strategy: {name: downpour}
stop:
  steps: 10
seed: 7
"""
# what is replaced, by what; the line with the mistake, and what is said of it
SLIPS = [
    ("latency: 200 us}", "latency: 200 us", 5, "the { is not closed"),
    ("{name: downpour}", "{name: downpour", 8, "the { is not closed"),
    ("{parameters: 1000}", "[1, 2", 7, "the [ is not closed"),
    ("seed: 7\n", "seed: {a: 7\n", 11, "the { is not closed"),
    ("name: good", 'name: "good', 1, "the quote is not closed"),
    ("{name: downpour}", "'downpour", 8, "the quote is not closed"),
    ("{name: downpour}", '"downpour"\nseed: 7\nname: "x', 10, "the quote is not closed"),
    ("name: good\n", "name: 'good\nseed: 'x'\n", 1, "the quote is not closed on its line"),
    ("  workers: 4", "  workers 4", 3, "expected ': ', with a space, after the key"),
    ("  workers: 4", "  workers:4", 3, "expected ': ', with a space, after the key"),
    ("  workers: 4", "  workers 4 # four", 3, "expected ': ', with a space, after the key"),
    ("name: good", "name good", 1, "expected ': '"),
    ("seed: 7", "seed 7", 11, "expected ': ' after the key"),
    ("seed: 7", "seed 7\n\n# the end", 11, "expected ': ' after the key"),
    ("  servers: 1", "   servers: 1", 4, "indent the line as those around it"),
    ("  servers: 1", " servers: 1", 4, "indent it as they are"),
    ("  servers: 1", "  - servers: 1", 4, "not valid YAML"),
    ("  servers: 1", "\tservers: 1", 4, "found character '\\t'"),
    ("name: good", "name: a: b", 1, "put the text in quotes"),
    ("seed: 7", "seed: \x07", 11, "unacceptable character"),
    ("seed: 7", "seed: &a 7\nname: &a x", 12, "duplicate anchor"),
    ("seed: 7", 'seed: "\\q"', 11, "unknown escape character"),
    ("seed: 7", "seed: 7\nseed: 8", 12, "duplicate key"),
    ("{name: downpour}", "{name: downpour}}", 8, "close what is open"),
]


@pytest.mark.parametrize(("old", "new", "line", "says"), SLIPS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_line_is_where_the_mistake_is(
    tmp_path: Path, old: str, new: str, line: int, says: str, end: str
) -> None:
    assert GOOD.count(old) == 1
    file = tmp_path / "slip.yaml"
    file.write_bytes(GOOD.replace(old, new).replace("\n", end).encode())
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert caught.value.line == line
    assert says in caught.value.problem


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("cluster.workers: 4\n" + GOOD, 1),
        (GOOD + "cluster.workers: 4\n", 12),
    ],
)
def test_a_dotted_key_is_not_taken_for_one_in_a_section(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "dotted.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=r"'cluster\.workers': unknown key") as caught:
        load(file)
    assert caught.value.line == line


def test_and_the_key_in_the_section_keeps_its_line(tmp_path: Path) -> None:
    lines: dict[str, int] = {}
    parse("cluster:\n  workers: 4\ncluster.workers: 5\nsweep:\n  cluster.workers: [1]\n", lines)
    assert lines["cluster.workers"] == 2
    assert lines["sweep.cluster.workers[0]"] == 5
