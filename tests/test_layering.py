"""Who may import whom (docs/design.md), and what importing a room loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "scenarios": set(),
    "strategies": set(),
    "workloads": {"scenarios"},
    "simulator": {"strategies", "scenarios", "workloads", "analysis.records"},
    "executor": {
        *("strategies", "scenarios", "workloads"),
        *("analysis.records", "analysis.streams", "analysis.incomplete"),
    },
    "analysis": {"scenarios", "strategies.placement", "strategies.registry", "strategies.idle"},
    "lockstep": {"scenarios", "strategies", "workloads", "simulator", "executor", "analysis"},
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


def allowed(name: str, room: str) -> bool:
    top = name.split(".")[0]
    if top not in MAY_IMPORT or top == room:
        return True
    if top in MAY_IMPORT[room]:
        return True
    return any(name == door or name.startswith(door + ".") for door in MAY_IMPORT[room] if "." in door)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        # `from analysis import records` names the package too, which is the price of that spelling
        wrong = {name for name in imported(path) if not allowed(name, room)}
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def test_the_rule_can_fail() -> None:
    assert not allowed("simulator.engine", "executor")
    assert not allowed("analysis.metrics", "simulator")
    assert not allowed("simulator", "analysis")
    assert allowed("analysis.records.Recorder", "simulator")


def loaded(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_strategies_load_no_engine_and_no_numbers() -> None:
    modules = loaded("import strategies")
    assert "strategies.registry" in modules
    assert not modules & {"simpy", "torch", "numpy", "pandas", "pydantic", "zmq"}
    outside = {name for name in modules if name.split(".")[0] in set(MAY_IMPORT) - {"strategies"}}
    assert not outside


def test_a_sizes_only_simulation_loads_no_torch() -> None:
    run = "lockstep.simulate(lockstep.load('sizes-only', ['stop.steps=2'])).metrics"
    modules = loaded(f"import lockstep; {run}")
    assert "simpy" in modules
    assert not modules & {"torch", "torchvision", "sklearn", "executor.launch"}
