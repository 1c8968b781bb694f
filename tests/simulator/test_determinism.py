"""A simulation is a pure function of (scenario, seed)."""

import subprocess
import sys

import pytest

RUN = """
import hashlib, io, sys, lockstep
for name, *changes in (
    ("quickstart", "stop.epochs=1"),
    ("sizes-only", "stop.steps=10", "cluster.compute.time={distribution: exponential, mean: 1 s}"),
):
    result = lockstep.simulate(lockstep.load(name, [*changes, *sys.argv[1:]]))
    table = io.BytesIO()
    result.records.to_parquet(table, index=False)
    print(hashlib.sha256(table.getvalue()).hexdigest(), result.metrics["parameters_sha256"])
"""


def digests(*overrides: str, hash_seed: str) -> list[str]:
    """Of a run that learns and of one that does not, in a process of their own."""
    command = [sys.executable, "-c", RUN, *overrides]
    environment = {"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_bytes_are_the_seeds_and_nothing_elses() -> None:
    once, again, other = (
        digests(f"seed={seed}", hash_seed=hash_seed) for seed, hash_seed in ((8, "1"), (8, "2"), (9, "1"))
    )
    assert once == again
    assert all(one != another for one, another in zip(once, other, strict=True))
