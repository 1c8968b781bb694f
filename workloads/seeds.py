"""Independent random streams, one per purpose, all functions of the scenario's seed."""

import zlib

import numpy as np


def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """Return the stream of `purpose` and `key` (a worker, a step, …) under the scenario's `seed`, all ≥ 0."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, key)))


def integer(seed: int, purpose: str, *key: int) -> int:
    """Return a 64-bit seed for torch, of `purpose` and `key` under the scenario's `seed` (all ≥ 0)."""
    return int(_sequence(seed, purpose, key).generate_state(1, np.uint64)[0])


def _sequence(seed: int, purpose: str, key: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()), *key))
