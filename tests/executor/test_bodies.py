"""Vectors that are made where others of the host read them: nothing is copied, and nothing overwritten."""

import os
import resource
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pytest

from lockstep.executor import bodies
from lockstep.executor.bodies import HEADER, Borrowed, Lent, Where

N = 1000


def made(lent: Lent, value: int, nbytes: int = N) -> np.ndarray:
    room = lent.room(nbytes)
    assert room is not None
    room[:] = value
    return room


def lend(lent: Lent, to: int, data: np.ndarray) -> Where:
    where = lent.lend(to, data)
    assert where is not None
    return where


def sizes(vectors: list[tuple[int, Any]]) -> list[tuple[int, int]]:
    return [(value, len(vector)) for value, vector in vectors]


def test_all_who_read_it_read_the_same_piece() -> None:
    lent, readers = Lent(), [Borrowed() for _ in range(3)]
    vector = made(lent, 7)
    where = [lend(lent, to, vector) for to in range(3)]
    found = [reader.body(9, its, N) for reader, its in zip(readers, where, strict=True)]
    assert len({its[:3] for its in where}) == 1
    vector[5] = 8
    assert [each[5] for each in found] == [8] * 3
    lent.close()


@pytest.mark.parametrize("last", ["the maker", "a reader", "who has not read it yet"])
def test_a_piece_is_used_again_when_nobody_has_it_any_more(last: str) -> None:
    lent, reader = Lent(), Borrowed()
    vector: Any = made(lent, 1)
    first, place = lend(lent, 0, vector), lent._made.copy().popitem()[0]
    found: Any = None if last == "who has not read it yet" else reader.body(9, first, N)
    if last == "the maker":
        del found
        found = None
    else:
        del vector
        vector = None
    assert bodies._place(made(lent, 2)) != place
    assert last != "the maker" or (vector == 1).all()
    if last == "who has not read it yet":
        found = reader.body(9, first, N)
    assert found is None or (found == 1).all()
    del vector, found
    assert bodies._place(made(lent, 3)) in lent._made
    assert len(lent._made) == 2
    lent.close()


def test_a_part_of_it_is_copied_and_so_is_what_a_reader_has_already() -> None:
    lent, reader = Lent(), Borrowed()
    vector = made(lent, 1)
    whole, again, part = lend(lent, 0, vector), lend(lent, 0, vector), lend(lent, 0, vector[:10])
    assert len({its[2] for its in (whole, again, part)}) == 3
    copy = reader.body(9, again, N)
    vector[:] = 2
    assert (copy == 1).all()
    assert len(reader.body(9, part, 10)) == 10
    lent.close()


def test_more_readers_than_it_can_have_read_copies() -> None:
    lent = Lent()
    vector = made(lent, 1)
    pieces = {lend(lent, to, vector)[2] for to in range(HEADER + 1)}
    assert len(pieces) == 1 + 2
    assert {lend(lent, to, made(lent, 2))[3] for to in (0, HEADER)} == {1, 0}
    lent.close()


def test_what_a_reader_that_is_gone_reads_is_not_used_again() -> None:
    """It may be there after all, cut off: its memory stays as it is, and so does that of others."""
    lent, reader = Lent(), Borrowed()
    vector, other = made(lent, 1), made(lent, 2)
    found = reader.body(9, lend(lent, 0, vector), N)
    file = lend(lent, 1, other)[1]
    lent.forget(0)
    assert os.fstat(file)
    assert len(lent._made) == 1
    held = lend(lent, 1, vector)  # a copy: what it lies in is nobody's any more
    del vector
    for value in range(5):
        made(lent, value + 3)
    assert (found == 1).all()
    assert (Borrowed().body(9, held, N) == 1).all()
    lent.close()


def test_who_is_left_keeps_no_memory_of_those_that_are_gone() -> None:
    """With each receiver that is gone goes a piece, which the others have mapped."""
    lent, reader = Lent(), Borrowed()
    for value in range(1, 9):
        vector = made(lent, value)
        held = reader.body(9, lend(lent, 0, vector), N)
        lend(lent, value, vector)
        lent.forget(value)
        assert (held == value).all()
        del held
    assert len(reader._mapped[9]) <= 2
    lent.close()


def _all_descriptors() -> list[int]:
    taken: list[int] = []
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    return taken


def test_without_descriptors_there_is_no_room() -> None:
    lent, (before, most) = Lent(), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 4, most))
    taken = _all_descriptors()  # a limit bounds their numbers: those in use may lie above it
    try:
        for _ in range(4):
            os.close(taken.pop())
        held = [lent.room(N) for _ in range(8)]
        assert held[0] is not None
        assert held[-1] is None
        assert lent.lend(0, np.zeros(N, np.uint8)) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
        for one in taken:
            os.close(one)
    assert lent.room(N) is not None
    lent.close()


def test_a_child_that_drops_it_frees_nothing() -> None:
    lent = Lent()
    vector = made(lent, 1)
    found = Borrowed().body(9, lend(lent, 0, vector), N)
    if (child := os.fork()) == 0:
        del found, vector
        os._exit(0)
    os.waitpid(child, 0)
    (piece,) = lent._made.values()
    assert list(piece.memory[:2]) == [1, 1]
    assert found[0] == 1
    lent.close()


@pytest.mark.parametrize(("limit", "sends"), [("_MOST", False), ("_MADE", True)])
def test_beyond_the_most_there_is_no_room(limit: str, sends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors that stay leave some for what is sent."""
    monkeypatch.setattr(bodies, limit, 2)
    lent = Lent()
    held = [made(lent, 1), made(lent, 2)]
    assert lent.room(N) is None
    assert (lent.lend(0, np.zeros(N, np.uint8)) is not None) == sends
    del held[0]
    assert (made(lent, 3) == 3).all()
    lent.close()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_made_lent_read_and_dropped_keeps_its_value(seed: int) -> None:
    draw, lent, readers = Random(seed), Lent(), [Borrowed() for _ in range(4)]
    own: list[tuple[int, np.ndarray]] = []
    mail: list[tuple[int, int, Where, int]] = []
    held: list[tuple[int, Any]] = []
    most = Counter[int]()
    for value in range(1, 200):
        nbytes = draw.choice([N, 2 * N])
        own.append((value, made(lent, value, nbytes)))
        for to in range(4):
            if draw.random() < 0.6:
                its, vector = draw.choice(own)
                mail.append((to, its, lend(lent, to, vector), len(vector)))
        while mail and draw.random() < 0.7:
            to, its, where, size = mail.pop(0)
            held.append((its, readers[to].body(9, where, size)))
        for some in (own, held):
            while some and draw.random() < 0.6:
                some.pop(draw.randrange(len(some)))
        if draw.random() < 0.03:
            gone = draw.randrange(4)
            lent.forget(gone)
            readers[gone].forget(9)
            mail = [each for each in mail if each[0] != gone]
        assert all((vector == its).all() for its, vector in [*own, *held])
        alive = {*sizes(own), *sizes(held), *((its, size) for _, its, _, size in mail)}
        most |= Counter(size for _, size in alive)
    assert len(lent._made) <= most.total()
    lent.close()
