"""What CI leaves to `make nightly`: by a rule, and said in CONTRIBUTING.md."""

import re
from pathlib import Path

from tests.support import ROOT
from tests.support.nightly import drawn

TESTS = ROOT / "tests"


def test_of_each_family_some_stay_whatever_their_order() -> None:
    cases = [f"{family} {number}" for family in "abc" for number in range({"a": 9, "b": 2, "c": 1}[family])]
    kept = [case for case in drawn(cases, one_in=4, family=lambda case: case[0]) if isinstance(case, str)]
    assert [case[0] for case in kept] == ["a", "a", "a", "b", "c"]
    again = drawn(reversed(cases), one_in=4, family=lambda case: case[0])
    assert {case for case in again if isinstance(case, str)} == set(kept)


def test_what_is_left_to_the_night_is_told() -> None:
    """Each file that draws has a row in the table, and nothing else has."""
    draws = {
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("test_*.py")
        if re.search(r"nightly import .*drawn|mark\.nightly", file.read_text()) and file != Path(__file__)
    }
    table = re.findall(r"^\| `(.*?\.py)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert sorted(table) == sorted(draws)
