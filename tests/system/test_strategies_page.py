"""docs/strategies.md says what there is: every strategy, its own parameters and their defaults."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from ruamel.yaml import YAML

import lockstep
from lockstep.strategies import STRATEGIES
from lockstep.strategies.consistency import immediate
from lockstep.strategies.optimizers import optimizer
from lockstep.strategies.owners import OneModelEach
from tests.support import ROOT
from tests.support.scenarios import scenario

FILES = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
PAGE = (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8")
REFERENCE, _, AUDIT = PAGE.partition("## Against the papers")
ROWS = {
    name: line
    for line in REFERENCE.splitlines()
    for name in re.findall(r"`([\w-]+)`", line.partition("|")[2].partition("|")[0])
    if line.startswith("| `")
}


def test_the_page_of_clusters_says_which_strategies_can_have_relays() -> None:
    """Those that it names; it says of what kind the others are."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    cells = [
        line.split("|")[1:3]
        for line in page.splitlines()
        if re.match(r"\| (a barrier|a server|no relays)", line)
    ]
    named = {kind.strip(): set(re.findall(r"`([\w-]+)`", names)) & STRATEGIES.keys() for kind, names in cells}
    yes = [names for kind, names in named.items() if not kind.startswith("no relays")]
    with_servers = {name for name, strategy in STRATEGIES.items() if strategy.has_servers}
    said = with_servers & set.union(*named.values())
    assert set.union(*yes) == {name for name in said if may_have_relays(name)}
    barrier, at_once = yes
    assert all(STRATEGIES[name].equal_steps for name in barrier)
    assert not any(STRATEGIES[name].equal_steps for name in at_once)
    corrected = named["no relays: each push is corrected by itself, as in"]
    assert corrected
    assert corrected <= {name for name, s in STRATEGIES.items() if s.correction is not None}


def may_have_relays(name: str) -> bool:
    try:
        lockstep.load("hierarchy", [f"strategy={name}"])
    except lockstep.ScenarioError as error:
        if error.key != "cluster.servers.hierarchy":
            raise
        return False
    return True


def keywords(part: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(part).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def own(name: str) -> dict[str, Any]:
    """The parameters of a strategy's factors and their defaults, but those that have their own sections."""
    strategy = STRATEGIES[name]
    shared = keywords(optimizer) | keywords(immediate)
    parts = [part for part in (strategy.worker_loop, strategy.consistency, strategy.correction) if part]
    return {key: value for part in parts for key, value in keywords(part).items() if key not in shared}


def documented(name: str) -> str:
    """The row of a strategy, and those of the ones whose parameters it is said to have too."""
    return ROWS[name] + "".join(documented(other) for other in re.findall(r"those of `([\w-]+)`", ROWS[name]))


@pytest.mark.parametrize(
    "name", [name for name, s in STRATEGIES.items() if s.has_servers or s.owners is OneModelEach]
)
def test_every_parameter_is_in_its_row_with_its_default(name: str) -> None:
    for key, default in own(name).items():
        value = f"{default:g}" if isinstance(default, float) else str(default).lower()
        shown = "" if default is None else rf"[^`(]*\({re.escape(value)}\b"
        assert re.search(f"`{key}`{shown}", documented(name)), key


def test_the_composed_strategy_is_one() -> None:
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    lockstep.check(scenario(strategy=YAML(typ="safe").load(shown)["strategy"]))


def audited() -> list[list[str]]:
    """The cells of each row of the audit: what, the verdict, the tests, the source."""
    lines = [line for line in AUDIT.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if row[1] != "verdict"]


def test_every_strategy_has_one_verdict() -> None:
    names = [row[0].strip("`") for row in audited() if row[0].startswith("`")]
    assert sorted(names) == sorted(STRATEGIES)
    for name, verdict, _, source in audited():
        assert re.fullmatch("faithful|variant: .+|deviation: .+", verdict), name
        assert source, name


@pytest.mark.parametrize("row", audited(), ids=lambda row: row[0])
def test_the_tests_that_hold_it_there_name_it(row: list[str]) -> None:
    what, _, tests, _ = row
    named = re.findall(r"`(test_\w+\.py)`", tests)
    assert named
    for test in named:
        text = FILES[test].read_text(encoding="utf-8")
        assert not what.startswith("`") or f'"{what.strip("`")}"' in text, test
