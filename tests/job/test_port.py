"""What a port is, by its types: a new primitive is missed in every engine."""

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.job.port import Port
from tests.support import ROOT

WIDER = """
from typing import Protocol
from lockstep.executor.interleaving import LoggedNode
from lockstep.executor.port import RealPort
from lockstep.job.node import Node
from lockstep.job.port import Port
from lockstep.simulator.port import VirtualPort
from lockstep.simulator.replay import ReplayedNode
from lockstep.strategies import Node as Language

class WiderPort(Port, Protocol):
    def migrate(self, to: int) -> None: ...

class WiderLanguage(Language, Protocol):
    def migrate(self, to: int) -> None: ...

def ports(virtual: VirtualPort, real: RealPort) -> list[Port]:
    return [virtual, real]

def wider_ports(virtual: VirtualPort, real: RealPort) -> None:
    first: WiderPort = virtual
    second: WiderPort = real

def nodes(node: Node, logged: LoggedNode, replayed: ReplayedNode) -> list[Language]:
    return [node, logged, replayed]

def wider_nodes(node: Node, logged: LoggedNode, replayed: ReplayedNode) -> None:
    first: WiderLanguage = node
    second: WiderLanguage = logged
    third: WiderLanguage = replayed
"""


def test_a_port_has_at_most_ten_primitives() -> None:
    assert len([name for name in vars(Port) if not name.startswith("_")]) <= 10


@pytest.mark.slow
def test_a_new_primitive_or_operation_is_missed_by_name_everywhere(tmp_path: Path) -> None:
    """By mypy: in both ports, and in the node and what records and repeats it; and nothing else is wrong."""
    (tmp_path / "wider.py").write_text(WIDER)
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", tmp_path / "wider.py"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    errors = [line for line in said.splitlines() if "error:" in line]
    assert len(errors) == 5, said
    for name in ("VirtualPort", "RealPort", '"Node"', "LoggedNode", "ReplayedNode"):
        assert any(name in line for line in errors), said
    assert said.count('is missing following "Wider') == 5, said
    assert said.count("migrate") == 5, said
