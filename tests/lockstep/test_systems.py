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
        assert len(row["published"]) == len(system.published)


def test_words_name_each_and_its_scenario(command: Lockstep) -> None:
    said = fine(command("systems"))
    assert all(system.name in said and f"simulate {system.scenario}" in said for system in SYSTEMS)
