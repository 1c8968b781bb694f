"""What a port is, by its types: a new primitive is missed in both engines and in what records and replays."""

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.executor.interleaving import RecordedPort
from lockstep.executor.port import RealPort
from lockstep.job.node import Node
from lockstep.job.port import Port
from lockstep.simulator.port import VirtualPort
from lockstep.simulator.replayed_port import ReplayedPort
from lockstep.strategies import Node as Language
from tests.support import ROOT

WIDER = """
from typing import Protocol
from lockstep.executor.interleaving import RecordedPort
from lockstep.executor.port import RealPort
from lockstep.job.node import Node
from lockstep.job.port import Port
from lockstep.simulator.port import VirtualPort
from lockstep.simulator.replayed_port import ReplayedPort
from lockstep.strategies import Node as Language

class WiderPort(Port, Protocol):
    def migrate(self, to: int) -> None: ...

class WiderLanguage(Language, Protocol):
    def migrate(self, to: int) -> None: ...

def ports(virtual: VirtualPort, real: RealPort, recorded: RecordedPort, replayed: ReplayedPort) -> list[Port]:
    return [virtual, real, recorded, replayed]

def wider_ports(virtual: VirtualPort, real: RealPort, recorded: RecordedPort, replayed: ReplayedPort) -> None:
    first: WiderPort = virtual
    second: WiderPort = real
    third: WiderPort = recorded
    fourth: WiderPort = replayed

def language(node: Node) -> Language:
    return node

def wider_language(node: Node) -> None:
    only: WiderLanguage = node
"""


def test_a_port_has_at_most_ten_primitives() -> None:
    assert len([name for name in vars(Port) if not name.startswith("_")]) <= 10


@pytest.mark.slow
def test_a_new_primitive_or_operation_is_missed_by_name_everywhere(tmp_path: Path) -> None:
    """By mypy: a primitive in the four ports, an operation in the one node; and nothing else is wrong."""
    (tmp_path / "wider.py").write_text(WIDER)
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", tmp_path / "wider.py"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    errors = [line for line in said.splitlines() if "error:" in line]
    assert len(errors) == 5, said
    for name in ('"VirtualPort"', '"RealPort"', '"RecordedPort"', '"ReplayedPort"', '"Node"'):
        assert any(name in line for line in errors), said
    assert said.count('is missing following "Wider') == 5, said
    assert said.count("migrate") == 5, said


def test_nothing_stands_in_for_a_member_that_is_forgotten() -> None:
    """What mypy would have to believe."""
    for port in (VirtualPort, RealPort, RecordedPort, ReplayedPort, Node):
        assert not {"__getattr__", "__getattribute__"} & {*vars(port)}


def test_only_the_node_and_the_protocol_know_the_operations() -> None:
    """A name of the language stands in no class that records or repeats a run."""
    names = {name for name in {*vars(Language), *Language.__annotations__} if not name.startswith("_")}
    primitives = {name for name in vars(Port) if not name.startswith("_")}
    assert names <= {*dir(Node)}
    for port in (VirtualPort, RealPort, RecordedPort, ReplayedPort):
        known = {name for name in vars(port) if not name.startswith("_")} & names
        assert known <= primitives | {"rank", "now"}, port
