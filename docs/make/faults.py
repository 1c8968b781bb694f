"""The table of docs/faults.md, which comes of running: `faults.py` writes it there."""

from pathlib import Path
from typing import Any

import lockstep
from lockstep import ScenarioError
from lockstep.scenarios.loading import made
from lockstep.strategies import STRATEGIES
from lockstep.studies.accuracy_suite.tables import between_markers

PAGE = Path(__file__).parent.parent / "faults.md"
NAME = "docs/make/faults.py"
POLICIES = ("restart", "wait", "continue")
_SOONER = {"diloco": {"averaging_period": 10}}  # its default is longer than these runs


def _goodput(strategy: str, faults: list[Any], on: str) -> float | None:
    """Of four workers whose gradients take 100 ms; None: the strategy cannot be run so."""
    cluster = {
        "workers": 4,
        "compute": {"time": {"distribution": "constant", "value": "100 ms"}},
        "detect": "500 ms",
        "faults": faults,
    }
    recovery: dict[str, Any] = {"on_failure": on, "checkpoint": {"every": "1 updates"}}
    document = {
        "name": "faults",
        "cluster": cluster,
        "workload": {"parameters": 1000, "batch_size": 32},
        "strategy": {"name": strategy, **_SOONER.get(strategy, {})},
        "stop": {"time": "10 s"},
        "recovery": recovery,
    }
    try:
        return float(lockstep.simulate(made(document)).metrics["goodput"] or 0.0)
    except ScenarioError:
        return None


def row(name: str) -> str:
    """What a crash costs a strategy, for each policy."""
    crash = {"at": "3.05 s", "crash": True, "back_after": "2 s"}
    worker, server = [{"worker": 2, **crash}], [{"server": 0, **crash}]
    whole = _goodput(name, [], "restart")
    found = [_goodput(name, worker, on) if whole else None for on in POLICIES]
    found.append(_goodput(name, server, "continue") if whole else None)
    shares = ["–" if each is None or not whole else f"{each / whole:.0%}" for each in found]
    return f"| `{name}` | " + " | ".join(shares) + " |"


def _table() -> str:
    lines = ["| strategy | " + " | ".join(f"`{on}`" for on in POLICIES) + " | a server: `continue` |"]
    lines.append("|---|" + "---|" * (len(POLICIES) + 1))
    return "\n".join([*lines, *map(row, STRATEGIES)])


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(between_markers(text, _table(), f"{NAME} strategies"), encoding="utf-8")
