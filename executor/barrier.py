"""Waiting for one another in the store, in Python: a signal is heard meanwhile."""

import time

from lockstep.executor.stores import Store


def barrier(store: Store, name: str, world: int) -> None:
    """Say that this process has come to the point of that name, and wait until all have."""
    store.add(f"barrier/{name}", 1)
    wait_for(store, name, world)


def wait_for(store: Store, name: str, world: int) -> None:
    """Wait until all processes have come to the point of that name."""
    while store.add(f"barrier/{name}", 0) < world:
        time.sleep(0.01)
