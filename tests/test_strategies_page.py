"""docs/strategies.md says what there is: every strategy, its own parameters and their defaults."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import scenario
from ruamel.yaml import YAML

import lockstep
from strategies import STRATEGIES
from strategies.consistency import immediate
from strategies.optimizers import optimizer

PAGE = (Path(__file__).parent.parent / "docs" / "strategies.md").read_text(encoding="utf-8")
ROWS = {
    name: line
    for line in PAGE.splitlines()
    for name in re.findall(r"`([\w-]+)`", line.partition("|")[2].partition("|")[0])
    if line.startswith("| `")
}


def keywords(part: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(part).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def own(name: str) -> dict[str, Any]:
    """The parameters of a strategy's factors and their defaults, but those that have their own sections."""
    strategy = STRATEGIES[name]
    shared = keywords(optimizer) | keywords(immediate)
    parts = [part for part in (strategy.schedule, strategy.consistency, strategy.rule) if part]
    return {key: value for part in parts for key, value in keywords(part).items() if key not in shared}


def documented(name: str) -> str:
    """The row of a strategy, and those of the ones whose parameters it is said to have too."""
    return ROWS[name] + "".join(documented(other) for other in re.findall(r"those of `([\w-]+)`", ROWS[name]))


@pytest.mark.parametrize(
    "name", [name for name, s in STRATEGIES.items() if s.has_servers or s.models == "own"]
)
def test_every_parameter_is_in_its_row_with_its_default(name: str) -> None:
    for key, default in own(name).items():
        value = f"{default:g}" if isinstance(default, float) else str(default).lower()
        shown = "" if default is None else rf"[^`(]*\({re.escape(value)}\b"
        assert re.search(f"`{key}`{shown}", documented(name)), key


def test_the_composed_strategy_is_one() -> None:
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    lockstep.check(scenario(strategy=YAML(typ="safe").load(shown)["strategy"]))
