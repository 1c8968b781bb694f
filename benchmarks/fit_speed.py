"""How long `lockstep fit` takes: two keys, a table of seven rows of eight workers (bar: a minute, two cores).

    python benchmarks/fit_speed.py

The table is simulated with other values than the scenario has, and with 2% of noise.
"""

import time

import numpy as np
import pandas as pd

import lockstep

TRUE = {"cluster.network.bandwidth": "3 Gbit/s", "cluster.compute.time.mean": "180 ms"}
ROWS = [
    ("synchronous", 1), ("synchronous", 2), ("synchronous", 4), ("synchronous", 8),
    ("all-reduce", 4), ("asynchronous", 4), ("asynchronous", 8),
]  # fmt: skip


def table() -> pd.DataFrame:
    rng, rows = np.random.default_rng(19), []
    for strategy, servers in ROWS:
        row = {"strategy.name": strategy, "cluster.servers.count": servers}
        changes = {"cluster.workers": 8, "seed": 5, **row, **TRUE}
        scenario = lockstep.load("sizes-only", [f"{key}={value}" for key, value in changes.items()])
        rate = lockstep.simulate(scenario).metrics["throughput"] * np.exp(rng.normal(0, 0.02))
        rows.append({**row, "throughput": rate})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    measured = table()
    for jobs in (1, None):
        begun, used = time.perf_counter(), time.process_time()
        found = lockstep.fit("sizes-only", measured, dict.fromkeys(TRUE), ["cluster.workers=8"], jobs=jobs)
        took = time.perf_counter() - begun
        print(f"{jobs or 'all'} processes: {took:.1f} s ({time.process_time() - used:.1f} s of this one's)")
    for key, value in found.free.items():
        print(f"{key}: {value.value:.4g} ({value.low} to {value.high}) {value.unit}")
    print(found.rows.to_string())
