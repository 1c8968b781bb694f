"""docs/strategies/: a page a family, which names what there is, and each strategy on one page."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from lockstep.schema import json_schema
from lockstep.strategies import STRATEGIES
from tests.support import ROOT

FOLDER = ROOT / "docs" / "strategies"
PAGES = sorted(FOLDER.glob("*.md"))
WORDS = set(re.findall(r'"([\w-]+)"', json.dumps(json_schema())))  # keys and values of scenarios


def family(page: Path) -> list[str]:
    """The strategies that a page is about: those that it names before the link to the reference."""
    return re.findall(r"`([\w-]+)`", page.read_text(encoding="utf-8").partition("[reference]")[0])


def test_every_strategy_is_on_one_page() -> None:
    assert Counter(name for page in PAGES for name in family(page)) == dict.fromkeys(STRATEGIES, 1)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_what_there_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for word in re.findall(r"`([a-z][\w.-]*)`", text):
        assert set(word.split(".")) <= WORDS, word


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_knobs_are_the_family_s_or_the_scenario_s(page: Path) -> None:
    """A parameter of another family's strategies is none here."""
    parameters = {name: set(strategy.parameters) for name, strategy in STRATEGIES.items()}
    own = set().union(*(parameters[name] for name in family(page)))
    others = set().union(*parameters.values()) - own
    knobs = page.read_text(encoding="utf-8").partition("## Knobs")[2].partition("\n## ")[0]
    for row in re.findall(r"^\|(.*?)\|", knobs, re.MULTILINE):
        assert not others & set(re.findall(r"`(\w+)`", row)), row


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_reference_leads_here(page: Path) -> None:
    assert f"](strategies/{page.name})" in (FOLDER.parent / "strategies.md").read_text(encoding="utf-8")
