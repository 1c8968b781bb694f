"""Who takes his turn first at a testbed's cables."""

from collections import defaultdict
from typing import Any
from unittest.mock import MagicMock

import pytest

from lockstep.executor import wiring
from lockstep.executor.fabric import fabric
from lockstep.scenarios import Cluster

WORKERS, SERVER = 3, 3
CLUSTER = {"workers": WORKERS, "servers": 1, "network": {"bandwidth": "20 Mbit/s"}, "compute": "measured"}


def test_who_is_first_on_the_way_to_a_server_is_last_on_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[list[tuple[int, int]]] = []

    def shape(ip: Any, index: int, rate: float, train: int, pairs: list[tuple[Any, Any]]) -> None:
        turns.append([(int(a) - int(wiring._FIRST), int(b) - int(wiring._FIRST)) for a, b in pairs])

    monkeypatch.setattr(wiring, "shape", shape)
    monkeypatch.setattr(wiring, "_interfaces", lambda ip: defaultdict(int))
    network = fabric(Cluster.model_validate(CLUSTER), WORKERS + 1)
    wiring.plug_in(MagicMock(), network)
    wiring.set_up(MagicMock(), network, SERVER)
    pushes = next(pairs for pairs in turns if pairs[0][1] == SERVER and len(pairs) == WORKERS)
    assert [worker for worker, _ in pushes] == [0, 1, 2]
    assert [worker for _, worker in turns[-1]] == [2, 1, 0]
