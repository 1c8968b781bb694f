"""Who is where under torchrun: servers are spread over the hosts."""

import socket
from itertools import chain, product
from pathlib import Path

import pytest

from lockstep.executor import joining
from lockstep.executor.joining import agree, placed
from lockstep.executor.stores import HashStore
from lockstep.job.version import whole_code
from lockstep.scenarios import ScenarioError
from tests.support import ROOT
from tests.support.scenarios import scenario


def test_every_host_has_as_many_workers_but_for_one() -> None:
    for hosts, each in product(range(1, 5), range(1, 6)):
        for workers in range(1, hosts * each + 1):
            ranks = [
                [placed(workers, hosts, each, host, own) for own in range(each)] for host in range(hosts)
            ]
            assert sorted(chain(*ranks)) == list(range(hosts * each))
            at_work = [sum(rank < workers for rank in there) for there in ranks]
            assert max(at_work) - min(at_work) <= 1
            assert ranks[0][0] == 0


def test_two_hosts_of_four_gpus_have_four_workers_and_a_server_each() -> None:
    assert [placed(8, 2, 5, 0, own) for own in range(5)] == [0, 1, 2, 3, 8]
    assert [placed(8, 2, 5, 1, own) for own in range(5)] == [4, 5, 6, 7, 9]
    assert [placed(3, 1, 5, 0, own) for own in range(5)] == list(range(5))


def test_all_have_the_same_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    for host in ("node1", "node2"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        agree(scenario(), store)
    told = "the scenario differs: 'steps: 6' on node2, 'steps: 5' on node1; give all hosts the same"
    with pytest.raises(ScenarioError, match=told):
        agree(scenario(stop__steps=6), store)


def test_and_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what one sends another does not understand."""
    store = HashStore()
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    agree(scenario(), store)
    monkeypatch.setattr(socket, "gethostname", lambda: "node2")
    monkeypatch.setattr(joining, "whole_code", lambda: "another")
    told = r"lockstep's code on node2 \(another\) is not that on node1 \(\w{12}\); install the same"
    with pytest.raises(ScenarioError, match=told):
        agree(scenario(), store)


def test_all_code_counts() -> None:
    """Of every room, also of those that are links."""
    read: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda file: bytes(read.append(file) or b""))
        whole_code()
    assert len(read) == len({*read})
    ours = ROOT / "lockstep"
    rooms = [ours, *(each.resolve() for each in ours.iterdir() if each.is_symlink())]
    assert {file.resolve() for file in read} == {file for room in rooms for file in room.rglob("*.py")}
