"""Predict Streaming DiLoCo's table of bandwidths, and write it into a page.

The table (studies/published/tables/streaming-diloco-2025.csv) is itself a simulation's: how many Gbit/s each
method needs for a share of the time to be computing,
with steps of 0.1, 0.8 and 4.9 s. Its bandwidths are those of `GRID`. What a step sends, and what is computed
meanwhile, is not in it. Two numbers were fitted, to the rows of data-parallel alone: the bits that a worker
sends for each parameter of the model's name, 13.5 (27/32 of bfloat16; of 6 to 34, in steps of a tenth), and
how much of a step is forward, a third (of 0, 1/5, 1/4, 3/10, 1/3, 2/5, 1/2). All other rows are predicted, in
two readings:

- `whole`: the strategies as they are: all-reduce in a bucket a layer, diloco, streaming-diloco. A sum is
  begun after a step, and waited for before one;
- `layers`: the same, but streaming-diloco, and diloco as its one fragment without overlap, in a unit a layer.
  A unit's sum is begun once the backward pass has come to it, and waited for when the forward pass comes to
  it; of P fragments each is every P-th layer. Data-parallel is as in `whole`.

Two workers, each with a card of that bandwidth both ways, around a ring; no latency; layers are as long and
as large as each other; additions take no time. 4-bit bodies have 4 bits a number, and a scale for every 256.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import lockstep
from lockstep import Scenario
from lockstep.studies.accuracy_suite.tables import between_markers
from lockstep.studies.published import table as tables

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "bandwidths.md"
NAME = "benchmarks/streaming_diloco.py"
GRID = [10 ** (-1 + 4 * k / 49) for k in range(50)]  # Gbit/s
BITS = 13.5  # that a worker sends for each parameter of the model's name: fitted
PERIOD, LAYERS_OF_A_FRAGMENT = 100, 3
READINGS = ("whole", "layers")


class Row(NamedTuple):
    method: str
    model: str
    layers: int
    step_s: float
    utilisation: float
    published: int  # a place in GRID

    @property
    def fragments(self) -> int:
        return self.layers // LAYERS_OF_A_FRAGMENT if "streaming" in self.method else 1

    @property
    def overlap(self) -> int:
        return int("overlapped" in self.method)

    @property
    def coded(self) -> bool:
        return "4-bit" in self.method

    @property
    def period(self) -> int:
        return 1 if self.method == "data-parallel" else PERIOD


def rows() -> Iterator[Row]:
    for _, row in tables.read("streaming-diloco-2025").facts.iterrows():
        needed = float(row["needed_gbit_per_s"])
        yield Row(
            row["method"],
            row["model"],
            int(row["workload.layers"]),
            float(row["cluster.compute.time.value"].removesuffix(" s")),
            int(row["utilisation_percent"]) / 100,
            min(range(len(GRID)), key=lambda place: abs(GRID[place] - needed)),
        )


def strategy(row: Row, reading: str) -> dict[str, Any]:
    if row.method == "data-parallel":
        return {"name": "all-reduce", "buckets": row.layers}
    values = {"averaging_period": row.period}
    if row.method == "diloco" and reading == "whole":
        return {"name": "diloco", **values}
    values |= {"fragments": row.fragments, "overlap": row.overlap}
    values |= {"units": row.layers} if reading == "layers" else {}
    return {"name": "streaming-diloco", **values, "codec": "e3m0" if row.coded else "none"}


@cache
def utilisation(row: Row, reading: str, place: int) -> float:
    """The share of the time that is computing, in the long run, at a place in GRID."""
    # as many numbers of two bytes as have so many bits for each parameter that the model's name has
    numbers = round(float(row.model.removesuffix("B")) * 1e9 * BITS / 16 / 2 / row.layers) * 2 * row.layers
    first = 2 * row.period

    def seconds(steps: int) -> float:
        scenario = {
            "name": "bandwidth",
            "cluster": {
                "workers": 2,
                "compute": {
                    "time": {"distribution": "constant", "value": f"{row.step_s} s"}, "backward": 2 / 3,
                },
                "network": {"bandwidth": f"{GRID[place]} Gbit/s", "latency": "0 s"},
            },
            "workload": {
                "parameters": numbers, "dtype": "bfloat16", "batch_size": 1, "layers": row.layers,
                "activation": "1 B",
            },
            "strategy": strategy(row, reading),
            "stop": {"steps": steps},
        }  # fmt: skip
        return float(lockstep.simulate(Scenario.model_validate(scenario)).metrics["duration_s"])

    return row.period * row.step_s / (seconds(first) - seconds(first - row.period))


def needed(row: Row, reading: str) -> int:
    """The first place in GRID that is enough: more bandwidth never makes a run slower."""
    place = row.published
    if utilisation(row, reading, place) < row.utilisation:
        while utilisation(row, reading, place) < row.utilisation:
            place += 1
        return place
    while place > 0 and utilisation(row, reading, place - 1) >= row.utilisation:
        place -= 1
    return place


def cell(row: Row) -> str:
    """Published, Gbit/s, and how many steps of the grid each reading is off: "28.1 (+9, 0)"."""
    off = [needed(row, reading) - row.published for reading in READINGS]
    return f"{GRID[row.published]:.1f} ({', '.join(f'{each:+d}' if each else '0' for each in off)})"


def table_row(method: str, model: str) -> str:
    cells = [cell(row) for row in rows() if (row.method, row.model) == (method, model)]
    return "| " + " | ".join([method, model, *cells]) + " |"


def table() -> str:
    every = list(rows())
    heads = ["method", "model", *(f"{each:.0%}" for each in dict.fromkeys(row.utilisation for row in every))]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += [table_row(*each) for each in dict.fromkeys((row.method, row.model) for row in every)]
    lines += [
        "",
        "| rows | reading | right | within one step of the grid | steps off at most |",
        "|---|---|---|---|---|",
    ]
    fitted = "data-parallel"
    for name, among in (
        ("data-parallel (fitted)", [row for row in every if row.method == fitted]),
        ("all others (predicted)", [row for row in every if row.method != fitted]),
    ):
        for reading in READINGS:
            off = [abs(needed(row, reading) - row.published) for row in among]
            counts = f"{off.count(0)} of {len(off)} | {sum(each <= 1 for each in off)} of {len(off)}"
            lines.append(f"| {name} | `{reading}` | {counts} | {max(off)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(between_markers(PAGE.read_text("utf-8"), table(), NAME), encoding="utf-8")
