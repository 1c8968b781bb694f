"""A simulation is a pure function of (scenario, seed)."""

import subprocess
import sys

import pytest

RUN = """
import hashlib, io, sys, lockstep
result = lockstep.simulate(lockstep.load(sys.argv[1], sys.argv[2:]))
table = io.BytesIO()
result.records.to_parquet(table, index=False)
print(hashlib.sha256(table.getvalue()).hexdigest(), result.metrics["parameters_sha256"])
"""
SMALL = {
    "quickstart": ["stop.epochs=1"],
    "sizes-only": ["stop.steps=10", "cluster.compute.time={distribution: exponential, mean: 1 s}"],
}


def digests(name: str, *overrides: str, hash_seed: str) -> str:
    command = [sys.executable, "-c", RUN, name, *SMALL[name], *overrides]
    environment = {"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_same_seed_same_bytes_in_two_processes(name: str) -> None:
    assert digests(name, hash_seed="1") == digests(name, hash_seed="2")


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_another_seed_other_bytes(name: str) -> None:
    assert digests(name, "seed=8", hash_seed="1") != digests(name, "seed=9", hash_seed="1")
