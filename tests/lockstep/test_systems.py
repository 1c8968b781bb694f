"""`lockstep systems`: a row a system, as JSON and in words."""

import json

from lockstep.studies.systems import SYSTEMS
from tests.support.command_line import Lockstep, fine

COLUMNS = [
    *("name", "scenario", "architecture", "consistency", "placement", "communication", "parallelism"),
    "published",
]


def test_json_has_the_columns(command: Lockstep) -> None:
    rows = json.loads(fine(command("systems", "--json")))
    assert [list(row) for row in rows] == [COLUMNS] * len(SYSTEMS)
    for row, system in zip(rows, SYSTEMS, strict=True):
        assert [each["verdict"] for each in row["published"]] == [each.verdict for each in system.published]


def test_words_name_each_and_its_scenario(command: Lockstep) -> None:
    said = fine(command("systems"))
    assert all(system.name in said for system in SYSTEMS)
    assert all(f"simulate {name}\n" in said for system in SYSTEMS for name in system.scenarios)
