"""The pictures of the pages: each is drawn by a command that is known, and none is older than the code."""

import json
import sys

import pytest

from tests.support import ROOT

MAKE = ROOT / "docs" / "make"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(MAKE))
    import drawn

    yield drawn
    del sys.modules["drawn"]


def test_every_picture_is_there_and_a_command_above_it_draws_it(drawn: object) -> None:
    names = {name for *_, name in drawn.images()}  # type: ignore[attr-defined]
    assert [name for name in sorted(names) if not (ROOT / "docs" / name).is_file()] == []
    found = {each.name: each for each in drawn.drawn()}  # type: ignore[attr-defined]
    folders = {
        word for each in found.values() for word in each.command.split() if word.startswith("results/")
    }
    made = {
        word for each in found.values() for command in [*each.makes, each.command] for word in command.split()
    }
    assert folders <= made
    left = names - {*found} - {*drawn.ELSEWHERE}  # type: ignore[attr-defined]
    assert {name for name in left if not name.startswith("systems/")} == set()


@pytest.mark.nightly
def test_no_picture_is_older_than_the_code_that_draws_it(drawn: object) -> None:
    noted = json.loads((MAKE / "pictures.json").read_text("utf-8"))
    measured = drawn.ELSEWHERE  # type: ignore[attr-defined]
    names = [name for name in sorted({name for *_, name in drawn.images()}) if name not in measured]  # type: ignore[attr-defined]
    older = [name for name in names if noted.get(name) != drawn.code_of(name)]  # type: ignore[attr-defined]
    assert older == [], f"draw them anew and look at them: make pictures WORDS='{' '.join(older)}'"


def test_what_is_said_of_code_makes_no_picture_old(drawn: object, tmp_path: object) -> None:
    file = ROOT / "analysis" / "plots" / "decision.py"
    said = drawn._said(file)  # type: ignore[attr-defined]
    assert "def decision(" in said
    assert '"""' not in said
    assert "# of the best" not in said
    assert "import" not in said
