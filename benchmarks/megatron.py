"""Predict Megatron-LM's table of step times (published/megatron.csv), and write the errors into a page.

`fit` finds three numbers from three of the eight rows. The choice was fixed, and committed, before any number
was fitted:

- `efficiency`: the share of 312 TFLOP/s that products of matrices reach, the same for all sizes;
- `passes`: how often what else a layer does (norms, dropout, sums) takes an activation through the memory, in
  a gradient, at 2 TB/s. Every device of a group does all of it; with sequence parallelism a part;
- `repeated`: how many times longer attention's core takes, when it is computed again, than its FLOPs say.

The first two come from full recomputation of 175B and 1T, the third from 175B with selective recomputation.
22B, 530B, and 1T with selective recomputation are predicted. 22B is outside of what was fitted; its
optimizer's step, about 30 bytes for each of 2.75 billion parameters a device or 0.05 s, is in no row here,
so it has to come out about 4% too fast.

Assumed, because the language cannot say it or the source does not:

- Selective recomputation is more work backward: attention's core forward, `repeated` times.
- Without sequence parallelism Megatron sends an eighth of an activation from each device, and puts it
  together behind (scatter/gather: Narayanan et al. 2021, §4.1). Here cards between hosts are eight times as
  fast instead; putting together is left out. `whole` leaves them as they are.
- 2 us of latency inside a host. The vocabulary (51,200) is spread over all layers, not over first and last.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import lockstep
from lockstep import Scenario
from lockstep.studies.accuracy_suite.tables import between_markers

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tensor.md"
NAME = "benchmarks/megatron.py"
_SEQUENCE, _VOCABULARY, _ITEM = 2048, 51_200, 2  # tokens, words, bytes
_PEAK, _MEMORY = 312e12, 2e12  # FLOP/s, bytes/s of a device
FITTED = [("175B", False), ("1T", False), ("175B", True)]  # model, whether selectively


class Fit(NamedTuple):
    efficiency: float
    passes: float
    repeated: float


FOUND = Fit(0.7771, 125.63, 29.20)  # by `fit`


class Row(NamedTuple):
    model: str
    selective: bool
    seconds: float
    tensor: int
    pipeline: int
    chunks: int
    batch: int
    micro_batch: int
    hidden: int
    layers: int

    @property
    def forward(self) -> float:
        """FLOPs of a step's forward pass (Narayanan et al. 2021, appendix: a quarter of what recomputes)."""
        s, h = _SEQUENCE, self.hidden
        logits = _VOCABULARY / (12 * h * self.layers)
        return 24 * self.batch * s * self.layers * h**2 * (1 + s / (6 * h) + logits)

    @property
    def core(self) -> float:
        """FLOPs of attention's core in it: queries by keys, and probabilities by values."""
        return 4 * self.batch * _SEQUENCE**2 * self.hidden * self.layers

    @property
    def activation(self) -> float:
        """Bytes of a step's activations at a boundary."""
        return _ITEM * self.batch * _SEQUENCE * self.hidden


def rows() -> Iterator[Row]:
    with (ROOT / "benchmarks" / "published" / "megatron.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            numbers = {key: int(row[key]) for key in Row._fields if key in row and key != "model"}
            for selective, seconds in ((False, row["s_full"]), (True, row["s_selective"])):
                yield Row(row["model"], selective, float(seconds), **numbers)


def scenario(row: Row, fit: Fit, whole: bool = False) -> Scenario:
    forward = row.forward / _PEAK / fit.efficiency
    again = row.selective * fit.repeated * row.core / _PEAK / fit.efficiency
    rest = fit.passes * row.activation * row.layers / _MEMORY * (1 if row.selective else row.tensor)
    seconds = 3 * forward + rest + again  # of a gradient on one device
    scattered = 1 if row.selective or whole else row.tensor
    document = {
        "name": "megatron",
        "cluster": {
            "workers": row.tensor * row.pipeline,
            "workers_per_host": 8,
            "network": {
                "bandwidth": f"{8 * 25e9 * scattered} B/s",
                "goodput": 0.9,
                "latency": "20 us",
                "intra_host": {"bandwidth": f"{8 * 300e9 * 0.65} B/s", "latency": "2 us"},
            },
            "compute": {
                "time": {"distribution": "constant", "value": f"{seconds} s"},
                "backward": (2 * forward + 2 / 3 * rest + again) / seconds,
            },
        },
        "workload": {
            "parameters": 12 * row.layers * row.hidden**2 + 13 * row.layers * row.hidden,
            "mixed": True,
            "layers": row.layers,
            "batch_size": row.batch,
            "activation": f"{row.activation} B",
        },
        "parallelism": {
            "tensor": row.tensor,
            "pipeline": row.pipeline,
            "micro_batches": row.batch // row.micro_batch,
            "order": "interleaved" if row.chunks > 1 else "1f1b",
            "chunks": row.chunks,
            "recompute": not row.selective,
            "sequence": row.selective,
        },
        "strategy": "all-reduce",
        "stop": {"steps": 1},
    }
    return Scenario.model_validate(document)


def predicted(row: Row, fit: Fit = FOUND, whole: bool = False) -> float:
    """Seconds of a step."""
    return float(lockstep.simulate(scenario(row, fit, whole)).metrics["duration_s"])


def fitted(whole: bool = False) -> Fit:
    """Newton's method: a step's time is nearly linear in 1/efficiency and in the other two."""
    of = {(row.model, row.selective): row for row in rows()}
    one, two, selective = (of[which] for which in FITTED)
    slowness, passes = 1 / 0.7, 10.0
    for _ in range(3):
        at = [predicted(row, Fit(1 / slowness, passes, 1.0), whole) for row in (one, two)]
        by_work = [
            predicted(row, Fit(1 / (slowness + 0.1), passes, 1.0), whole) - here
            for row, here in zip((one, two), at, strict=True)
        ]
        by_rest = [
            predicted(row, Fit(1 / slowness, passes + 5, 1.0), whole) - here
            for row, here in zip((one, two), at, strict=True)
        ]
        left = one.seconds - at[0], two.seconds - at[1]
        area = by_work[0] * by_rest[1] - by_work[1] * by_rest[0]
        slowness += 0.1 * (left[0] * by_rest[1] - left[1] * by_rest[0]) / area
        passes += 5 * (by_work[0] * left[1] - by_work[1] * left[0]) / area
    repeated = 0.0, 8.0
    for _ in range(3):
        a, b = (predicted(selective, Fit(1 / slowness, passes, each)) for each in repeated)
        found = repeated[0] + (selective.seconds - a) / (b - a) * (repeated[1] - repeated[0])
        repeated = found, found + 1.0
    return Fit(1 / slowness, passes, repeated[0])


def line(row: Row) -> str:
    found = predicted(row)
    how = "attention's core, sequence parallelism" if row.selective else "all"
    fit = " (fitted)" if (row.model, row.selective) in FITTED else ""
    split = f"{row.tensor} × {row.pipeline}"
    error = f"{100 * (found / row.seconds - 1):+.1f}%{fit}"
    return f"| {row.model} | {split} | {how} | {row.seconds:.2f} | {found:.2f} | {error} |"


def table() -> str:
    lines = [
        f"Fitted: {FOUND.efficiency:.3f} of 312 TFLOP/s; {FOUND.passes:.1f} passes of a layer's activation "
        f"through the memory;",
        f"attention's core, computed again, takes {FOUND.repeated:.1f} times as long as its FLOPs say.",
        "",
        "| model | tensor × stages | computed again | published, s | predicted, s | error |",
        "|---|---|---|---|---|---|",
        *map(line, rows()),
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["fit"]:
        print(fitted())
    else:
        PAGE.write_text(between_markers(PAGE.read_text("utf-8"), table(), NAME), encoding="utf-8")
