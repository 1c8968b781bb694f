"""A worker's journal: what it had computed, gave up and was at, whenever it was killed."""

from math import nan
from pathlib import Path
from struct import Struct
from threading import Thread
from typing import Any

import pytest

from lockstep.executor import journal
from lockstep.executor.anew import Anew
from lockstep.executor.port import RealPort
from lockstep.executor.waiting import Timer
from lockstep.job.events import Retired
from lockstep.strategies.node import Message
from tests.support.nodes import real_nodes
from tests.support.scenarios import scenario

ENTRY = Struct("=idd")
ENTRIES = [(0, 0.0, nan), (0, 0.0, 0.5), (1, 0.5, nan), (1, 0.5, -0.7), (1, 0.9, nan), (1, 0.9, 1.4)]


@pytest.mark.parametrize(
    ("entries", "more", "done", "given_up", "under_way"),
    [
        (0, 0, 0, 0, None),
        (1, 7, 0, 0, 0),
        (2, 0, 1, 0, None),
        (3, 19, 1, 0, 1),
        (4, 0, 1, 1, None),
        (5, 1, 1, 1, 1),
        (6, 0, 2, 1, None),
    ],
)
def test_whatever_has_been_written_is_read(
    entries: int, more: int, done: int, given_up: int, under_way: int | None, tmp_path: Path
) -> None:
    file = journal.journal_of(tmp_path, 3)
    written = b"".join(ENTRY.pack(*entry) for entry in ENTRIES[:entries])
    file.write_bytes(written + b"?" * more)  # the beginning of another
    found = journal.read(file)
    assert found.done == [ENTRIES[1], ENTRIES[5]][:done]
    assert found.given_up == [(1, 0.5, 0.7)][:given_up]
    assert (found.under_way[0] if found.under_way else None) == under_way


def test_a_gradient_is_there_once_that_was_given_up_in_the_instant_of_its_end(tmp_path: Path) -> None:
    file = journal.journal_of(tmp_path, 3)
    entries = [(0, 0.0, nan), (0, 0.0, 0.5), (0, 0.0, 0.6), (1, 0.7, nan), (1, 0.7, 0.9), (1, 0.7, -0.9)]
    file.write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries))
    assert journal.read(file) == journal.Journal([(0, 0.0, 0.6)], [(1, 0.7, 0.9)], None)


def test_a_worker_that_has_begun_nothing_has_none(tmp_path: Path) -> None:
    assert journal.read(journal.journal_of(tmp_path, 0)) == journal.Journal([], [], None)


def test_a_gradient_that_ends_when_its_server_has_begun_anew_is_given_up() -> None:
    """What a worker pushed then would be added to parameters that it is not of."""

    class Gradient(Timer):
        def block(self) -> None:
            port.broken = True  # as the server's word does, when it is fetched

    with real_nodes(scenario()) as nodes:
        port = next(node.port for node in nodes if isinstance(node.port, RealPort))
        event = Gradient(0.0)
        with pytest.raises(Anew):
            port.until(event)
        assert event.callbacks is not None, "it has ended"


def test_a_worker_whose_server_has_begun_anew_sends_nothing_before_it_does_too() -> None:
    with real_nodes(scenario()) as nodes:
        node = next(node for node in nodes if isinstance(node.port, RealPort))
        port: Any = object.__new__(journal.GoingOnPort)
        vars(port).update(vars(node.port))
        port.broken = True
        with pytest.raises(Anew):
            port.post(1, Message("push", 0))


def test_an_activity_of_before_sends_nothing_when_a_worker_has_begun_anew() -> None:
    """The new one has begun again with a pull."""
    with real_nodes(scenario()) as nodes:
        node = next(node for node in nodes if isinstance(node.port, RealPort))
        port: Any = object.__new__(journal.GoingOnPort)
        vars(port).update(vars(node.port))
        found: list[BaseException] = []

        def activity() -> None:
            port._thread.began = port._begun_anew
            port.drop_all()
            for what in (port.look_for_the_end, lambda: port.post(1, Message("push", 0))):
                with pytest.raises(Retired) as ended:
                    what()
                found.append(ended.value)

        thread = Thread(target=activity)
        thread.start()
        thread.join()
        assert len(found) == 2
        assert not port.is_of_before()  # the program itself
