"""Who may import whom (docs/design.md), and what importing a room loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.executor import forking
from tests.support import ROOT

MAY_IMPORT = {
    "scenarios": set(),
    "strategies": set(),
    "workloads": {"scenarios", "strategies.exchanges"},
    "job": {"strategies", "scenarios", "workloads", "analysis.records"},
    "simulator": {
        *("job", "strategies", "scenarios", "workloads"),
        *("analysis.columns", "analysis.records", "analysis.result", "analysis.entries"),
        "analysis.utilisation",
    },
    "executor": {
        *("job", "strategies", "scenarios", "workloads"),
        *("analysis.records", "analysis.result", "analysis.streams", "analysis.incomplete"),
        *("analysis.computations", "analysis.entries", "analysis.whole"),
    },
    "analysis": {
        *("job.plan", "scenarios", "strategies.placement", "strategies.registry", "strategies.idle"),
        "strategies.resource",
    },
    "studies": {
        *("job", "scenarios", "strategies", "workloads", "simulator", "executor", "analysis"),
        # what a user calls, and what the commands that try many runs share
        *(
            "",
            "Result",
            "Scenario",
            "attempts",
            "loopback",
            "machine",
            "pool",
            "selection",
            "terminal",
            "validation",
        ),
    },
    "lockstep": {
        "job",
        "scenarios",
        "strategies",
        "workloads",
        "simulator",
        "executor",
        "analysis",
        "studies",
    },
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def allowed(name: str, room: str) -> bool:
    package, _, inside = name.partition(".")
    if package != "lockstep":
        return package not in MAY_IMPORT
    top = inside.split(".")[0]
    if top == room or room == "lockstep":
        return True
    return any(inside == door or inside.startswith(door + ".") for door in MAY_IMPORT[room])


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        wrong = {name for name in imported(path) if not allowed(name, room)}
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def test_the_rule_can_fail() -> None:
    assert not allowed("lockstep.simulator.engine", "executor")
    assert not allowed("lockstep.analysis.metrics", "simulator")
    assert not allowed("lockstep.simulator", "analysis")
    assert not allowed("lockstep", "simulator")
    assert not allowed("lockstep.commands.options", "studies")
    assert not allowed("lockstep.studies.verification", "analysis")
    assert not allowed("simulator.engine", "lockstep")  # only the folder is called so
    assert allowed("lockstep.analysis.records.Recorder", "simulator")


def test_no_test_imports_a_test() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        wrong = {name for name in imported(path) if ".test_" in f".{name}"}
        assert not wrong, (
            f"{path.relative_to(ROOT)} imports {sorted(wrong)}: what tests share is in tests/support"
        )


def loaded(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_strategies_load_no_engine_and_no_numbers() -> None:
    modules = loaded("from lockstep import strategies")
    assert "lockstep.strategies.registry" in modules
    assert not modules & {"simpy", "torch", "numpy", "pandas", "pydantic", "zmq"}
    front = {
        f"lockstep.scenarios{name}" for name in ("", ".problem", ".shelves")
    }  # what `import lockstep` loads
    rooms = {name for name in modules if name.startswith("lockstep.")}
    assert {name for name in rooms - front if not name.startswith("lockstep.strategies")} == set()


def test_a_real_run_begins_its_fork_server_before_it_loads_torch() -> None:
    """They then load it at the same time."""
    modules = loaded(
        "import lockstep; from lockstep.executor import fork_server; "
        "fork_server.start = lambda names: print(*names); "
        "fork_server.start_for(lockstep.check(lockstep.load('quickstart')), testbed=False)"
    )
    assert "lockstep.workloads.classifier" in modules  # which the fork server would import
    assert not modules & {"torch", "lockstep.executor.launch", "pandas", "pyarrow"}


def test_the_command_begins_the_fork_server_of_a_run_before_it_loads_anything_large() -> None:
    modules = loaded("import lockstep.commands.one_run, lockstep.executor.forking")
    assert "typer" in modules
    assert not modules & {"numpy", "pydantic", "simpy", "lockstep.work", "lockstep.workloads"}


def test_processes_of_a_run_load_no_pandas() -> None:
    """Nor what else their results are put together with: all that the fork server imports is waited for."""
    modules = loaded(f"import lockstep.executor.process, {', '.join(forking.LEARNERS)}")
    assert {"torch", "pyarrow"} <= modules
    rest = {"pandas", "simpy", "typer", "rich", "scipy", "torchvision", "torch._dynamo"}
    assert not modules & {*rest, "lockstep.executor.launch", "lockstep.executor.collect"}


def test_a_sizes_only_simulation_loads_no_torch() -> None:
    run = "lockstep.simulate(lockstep.load('sizes-only', ['stop.steps=2'])).metrics"
    modules = loaded(f"import lockstep; {run}")
    assert "simpy" in modules
    assert not modules & {"torch", "torchvision", "sklearn", "lockstep.executor.launch"}
    assert not modules & {"pandas", "numpy.ma", "rich", "typer"}
