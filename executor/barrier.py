"""Waiting for one another in the store, in Python: a signal is heard meanwhile."""

import time

from lockstep.executor.stores import Store


def barrier(store: Store, name: str, world: int) -> None:
    """Say that this process has come to the point of that name, and wait until all have."""
    store.add(f"barrier/{name}", 1)
    wait_for(store, name, world)


def wait_for(store: Store, name: str, world: int) -> None:
    """Wait until all processes have come to the point of that name."""
    while not passed(store, name, world):
        time.sleep(0.01)


def passed(store: Store, name: str, world: int) -> bool:
    """Whether all processes have come to the point of that name."""
    return store.add(f"barrier/{name}", 0) >= world
