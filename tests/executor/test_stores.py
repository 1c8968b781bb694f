"""The store of processes that may be killed at any instant."""

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lockstep.executor import stores
from lockstep.executor.stores import FileStore, FolderStore, HashStore, PrefixStore, Store, for_collectives

CALLS: dict[str, Callable[[Store], object]] = {
    "set": lambda store: store.set("name", "new"),
    "add": lambda store: store.add("number", 3),
    "compare_set": lambda store: store.compare_set("name", "old", "new"),
    "compare_set_first": lambda store: store.compare_set("another", "", "new"),
}


def killed_at(line: int, call: Callable[[], object]) -> bool:
    """Whether a process was killed before it ran so many lines of the store; else it has made the call."""
    child = os.fork()
    if not child:
        left = line

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename != stores.__file__:
                return None
            left -= event == "line"
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        call()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", CALLS)
def test_who_is_killed_at_any_line_leaves_what_was_or_what_is_to_be(name: str, tmp_path: Path) -> None:
    line, seen = 0, set()
    while True:
        store = FolderStore(tmp_path / f"{line}")
        store.set("name", "old")
        store.add("number", 4)
        was_killed = killed_at(line, lambda store=store: CALLS[name](store))  # type: ignore[misc]
        found = store.get("name"), store.add("number", 0)
        assert found in [(b"old", 4), (b"new", 4), (b"old", 7)]
        seen.add((found, store.check(["another"])))
        # nothing is held: others go on
        store.add("number", 1)
        assert store.compare_set("name", found[0].decode(), "next") == b"next"
        if not was_killed:
            break
        line += 1
    assert line > 3
    assert len(seen) == 2  # before, and after


def test_does_what_the_stores_of_torch_do(tmp_path: Path) -> None:
    said = []
    for store in (HashStore(), FolderStore(tmp_path / "store")):
        store.set("a/b c", "1")
        store.set("a%2Fb c", b"\0\xff")
        said.append(
            [
                store.get("a/b c"),
                store.get("a%2Fb c"),
                store.check(["a/b c"]),
                store.check(["a/b c", "no"]),
                store.add("n", 2),
                store.add("n", -5),
                store.add("n", 0),
                store.add("zero", 0),
                store.compare_set("c", "", "x"),
                store.compare_set("c", "", "y"),
                store.compare_set("c", "x", "z"),
                store.get("c"),
                store.compare_set("none", "x", "y"),
                store.check(["none"]),
            ]
        )
    assert said[0] == said[1]


def test_counts_what_many_add(tmp_path: Path) -> None:
    def add(_: int) -> list[int]:
        store = FolderStore(tmp_path / "store")
        return [store.add("n", 1) for _ in range(200)]

    with ThreadPoolExecutor(4) as pool:
        found = [number for numbers in pool.map(add, range(4)) for number in numbers]
    assert sorted(found) == [*range(1, 801)]


def test_waits_for_what_another_sets(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(FolderStore(tmp_path / "store").get, "late")
        FolderStore(tmp_path / "store").set("late", "here")
        assert got.result(10) == b"here"


def test_process_groups_have_a_store_that_needs_no_python(tmp_path: Path) -> None:
    assert isinstance(for_collectives(FolderStore(tmp_path / "store"), tmp_path), FileStore)
    assert isinstance(for_collectives(HashStore(), tmp_path), PrefixStore)
