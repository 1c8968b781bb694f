"""From one and two workers to twelve: what `lockstep fit` predicts of the testbed (as root, 20 minutes).

    python benchmarks/extrapolation.py measure results/extrapolation
    python benchmarks/extrapolation.py predict benchmarks/truth/extrapolation
    python benchmarks/extrapolation.py both benchmarks/truth/extrapolation

Measured are points of the accuracy suite without stragglers, on the testbed, for as long and as often as the
suite has it. Two of each strategy are fitted, those with the fewest workers, by what no data sheet has: the
latency of a message. All else is as in the runs: their stop, and what is known of the testbed's cables, the
share of headers, the queue, the trains. (`both` fits the share of data, too, as we did until 2026-11-26.)
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import lockstep
from lockstep.executor.shaping import DATA, FRAME, LINE_RATE, QUEUE, bucket, trains
from lockstep.studies.accuracy_suite.measuring import measure as measure_points
from lockstep.studies.accuracy_suite.suite import chosen, named

POINTS = {
    "synchronous-w{}-s1-network-none": (1, 2, 4, 8, 12),
    "synchronous-w{}-s1-balanced-none": (1, 2, 4, 8, 12),
    "asynchronous-w{}-s1-balanced-none": (1, 2, 4, 8, 12),
    "ssp-blocking-w{}-s1-network-none": (1, 2, 4, 8, 12),
    "all-reduce-ring-w{}-network-none": (2, 4, 8, 12),
}
LATENCY = {"cluster.network.latency": ("50 us", "5 ms")}
GOODPUT = {"cluster.network.goodput": (0.5, 0.98)}
CABLE = 6.25e6  # bytes/s
KNOWN = {
    "goodput": DATA / FRAME,
    "queue": f"{QUEUE} B",
    "burst.size": f"{bucket(CABLE)} B",
    "burst.line_rate": f"{LINE_RATE} B/s",
    **{f"burst.{key}": f"{nbytes} B" for key, nbytes in trains(CABLE).items()},
}


def measure(folder: Path) -> None:
    """Write a table for each kind of point; what is there is not measured again."""
    for name, counts in POINTS.items():
        points = [chosen(name.format(workers)) for workers in counts]
        rows = measure_points(points, folder, True, print)
        table = pd.DataFrame(rows)[["workers", "throughput", "runs", "disturbed", "scenario"]]
        stops = [json.loads(text)["stop"] for text in table.pop("scenario")]
        table["stop.updates"] = [stop["updates"] for stop in stops]
        table["stop.time"] = [stop["time"] for stop in stops]
        table["use"] = ["fit" if workers in counts[:2] else "predict" for workers in counts]
        table = table.rename(columns={"workers": "cluster.workers"})
        table.to_csv(folder / f"{name.replace('-w{}', '')}.csv", index=False)


def predict(folder: Path, free: dict[str, Any] = LATENCY) -> None:
    """Print a row for each predicted point, and the errors of all."""
    errors = []
    for name, counts in POINTS.items():
        file = folder / f"{name.replace('-w{}', '')}.csv"
        table = pd.read_csv(file)
        table = table[(table["use"] == "fit") | ~table.pop("disturbed")].drop(columns="runs", errors="ignore")
        found = lockstep.fit(
            named(name.format(counts[0])).scenario, table, free,
            [f"cluster.network.{key}={value}" for key, value in KNOWN.items()],
        )  # fmt: skip
        values = ", ".join(f"{key.split('.')[-1]} {value.value:.4g}" for key, value in found.free.items())
        print(f"{file.stem}: {values}" + ("" if found.identifiable else " (not told apart)"))
        for row in found.rows.to_dict("records"):
            if row["use"] == "predict":
                errors.append(row["error"])
                print(f"  {row['cluster.workers']} workers: measured {row['measured']:.1f}, predicted "
                      f"{row['predicted']:.1f} samples/s, {row['error']:+.1%}")  # fmt: skip
    sizes = np.abs(errors)
    middle, most = np.quantile(sizes, [0.5, 0.9])
    print(f"{len(errors)} rows: median {middle:.1%}, 90% within {most:.1%}, largest {sizes.max():.1%}")


if __name__ == "__main__":
    both = partial(predict, free=LATENCY | GOODPUT)
    {"measure": measure, "predict": predict, "both": both}[sys.argv[1]](Path(sys.argv[2]))
