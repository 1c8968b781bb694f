"""Predict torchgpipe's AmoebaNet table (published/amoebanet-speed.csv), and write the errors into a page.

What is fitted was fixed, and committed, before any row was predicted. With one micro-batch a step is passes
and transfers one after another:

    batch · (4/3 · T + activations / rate)

T are the seconds of a sample's gradient on one card without recomputation, a third of it forward;
`activations` are the bytes of a sample that cross boundaries, both ways. Of the rows with one micro-batch,
those with the fewest and the most stages give T and the rate. All other rows are predicted, in two readings
of what the source does not say:

- `equal`: all stages take the same time; it says that every setting was optimized for these cards;
- `flops`: a stage takes its share of the FLOPs (published/amoebanet-layers.csv).

Every boundary of a row has the mean of its activations. Each card has a link of its own, both ways. Known
beforehand to differ: here every micro-batch is recomputed, once its error has come; there the last one is
not, and others are while a stage waits. Both make few micro-batches too slow here.
"""

import csv
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import lockstep
from lockstep import Scenario
from lockstep.studies.accuracy_suite.tables import between_markers

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks" / "published"
PAGE = ROOT / "docs" / "pipelines.md"
NAME = "benchmarks/torchgpipe.py"
FITTED = [(2, 1), (8, 1)]  # stages, micro-batches
READINGS = ("equal", "flops")
_ITEM, _AGAIN = 4, 4 / 3  # bytes; a gradient with recomputation takes so much of one without


class Row(NamedTuple):
    stages: int
    micro_batches: int
    samples_per_s: float
    batch: int
    bytes_at: float  # mean bytes of a sample at a boundary
    flops: Sequence[float]  # of each stage

    @property
    def crossed(self) -> float:
        """Bytes of a sample that cross boundaries, forward and backward."""
        return 2 * (self.stages - 1) * self.bytes_at


def _table(name: str) -> Iterator[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))


def rows() -> list[Row]:
    layers = list(_table("amoebanet-layers"))
    flops = [float(layer["forward_flops"]) + float(layer["backward_flops"]) for layer in layers]
    found = []
    for row in _table("amoebanet-speed"):
        ends = list(accumulate(map(int, row["layers_per_stage"].split())))
        sent = [_ITEM * float(layers[end - 1]["output"]) for end in ends[:-1]]
        found.append(
            Row(
                int(row["stages"]),
                int(row["micro_batches"]),
                float(row["samples_per_s"]),
                int(row["batch"]),
                sum(sent) / len(sent),
                [sum(flops[a:b]) for a, b in zip([0, *ends], ends, strict=False)],
            )
        )
    return found


def fitted(all_rows: Sequence[Row]) -> tuple[float, float]:
    """T, seconds of a sample's gradient on one card, and the rate of a link, bytes/s."""
    one, two = (row for row in all_rows if (row.stages, row.micro_batches) in FITTED)
    slower = 1 / two.samples_per_s - 1 / one.samples_per_s
    rate = (two.crossed - one.crossed) / slower
    return (1 / one.samples_per_s - one.crossed / rate) / _AGAIN, rate


def predicted(row: Row, seconds: float, rate: float, reading: str) -> float:
    """Samples/s."""
    uneven = [each / sum(row.flops) * row.stages for each in row.flops]
    slowdowns = uneven if reading == "flops" else [1.0] * row.stages
    time = {"distribution": "constant", "value": f"{seconds * row.batch} s"}
    activation = f"{row.bytes_at * row.batch} B"
    scenario = {
        "name": "torchgpipe",
        "cluster": {
            "workers": row.stages,
            "compute": {"time": time, "backward": 2 / 3},
            "network": {"bandwidth": f"{rate} B/s", "latency": "0 s"},
            "stragglers": [{"worker": stage, "slowdown": each} for stage, each in enumerate(slowdowns)],
        },
        "workload": {"parameters": 122_470_120, "batch_size": row.batch, "activation": activation},
        "parallelism": {
            "pipeline": row.stages,
            "order": "gpipe",
            "micro_batches": row.micro_batches,
            "recompute": True,
        },
        "strategy": "all-reduce",
        "stop": {"steps": 2},
    }
    return float(lockstep.simulate(Scenario.model_validate(scenario)).metrics["throughput"])


def table() -> str:
    all_rows = rows()
    seconds, rate = fitted(all_rows)
    lines = [
        f"Fitted: {1e3 * seconds:.2f} ms a sample's gradient, {rate / 1e9:.1f} GB/s.",
        "",
        "| stages | micro-batches | published, samples/s | stages equal | error | stages by FLOPs | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in all_rows:
        cells = [str(row.stages), str(row.micro_batches), f"{row.samples_per_s:.1f}"]
        for reading in READINGS:
            found = predicted(row, seconds, rate, reading)
            fit = " (fitted)" if (row.stages, row.micro_batches) in FITTED else ""
            error = round(100 * (found / row.samples_per_s - 1))  # an integer: there is no −0
            cells += [f"{found:.1f}", f"{error:+d}%{fit}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(between_markers(PAGE.read_text("utf-8"), table(), NAME), encoding="utf-8")
