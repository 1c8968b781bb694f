"""A simulation is a pure function of (scenario, seed)."""

import subprocess
import sys

import pytest

RUN = """
import hashlib, io, sys, lockstep
for seed in sys.argv[1:]:
    for name, *changes in (
        ("quickstart", "stop={steps: 20}"),
        ("sizes-only", "stop.steps=10", "cluster.compute.time={distribution: exponential, mean: 1 s}"),
    ):
        result = lockstep.simulate(lockstep.load(name, [*changes, f"seed={seed}"]))
        table = io.BytesIO()
        result.records.to_parquet(table, index=False)
        print(hashlib.sha256(table.getvalue()).hexdigest(), result.metrics["parameters_sha256"])
"""


def digests(*seeds: str, hash_seed: str) -> list[str]:
    """Of each seed's run that learns and one that does not, in a process of their own."""
    command = [sys.executable, "-c", RUN, *seeds]
    environment = {"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_bytes_are_the_seeds_and_nothing_elses() -> None:
    once, again = digests("8", hash_seed="1"), digests("9", "8", hash_seed="2")
    other, same = again[:2], again[2:]
    assert once == same
    assert all(one != another for one, another in zip(once, other, strict=True))
