"""The tables and pictures of docs/pipelines.md, which come of running: `pipelines.py` writes them there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import lockstep
from lockstep import Result, Scenario, ScenarioError
from lockstep.strategies import STRATEGIES
from lockstep.studies.accuracy_suite.tables import between_markers

PAGE = Path(__file__).parent.parent / "pipelines.md"
NAME = "docs/make/pipelines.py"
_K, _M, _STEPS = 4, 8, 20  # stages, micro-batches, mini-batches of the table of orders
_ORDERS: dict[str, tuple[str, dict[str, Any]]] = {  # what is shown: the strategy, and what `parallelism` says
    "`gpipe`": ("all-reduce", {"order": "gpipe"}),
    "`gpipe`, `recompute`": ("all-reduce", {"order": "gpipe", "recompute": True}),
    "`1f1b`": ("all-reduce", {"order": "1f1b"}),
    "`interleaved`, `chunks: 2`": ("all-reduce", {"order": "interleaved", "chunks": 2}),
    "`zero-bubble`": ("all-reduce", {"order": "zero-bubble"}),
    "strategy `pipedream-2bw`": ("pipedream-2bw", {}),
    "strategy `pipedream`": ("pipedream", {"micro_batches": 1}),
}
_DRAWN = {
    "gpipe": {"order": "gpipe"},
    "1f1b": {"order": "1f1b"},
    "interleaved": {"order": "interleaved", "chunks": 2},
    "zero-bubble": {"order": "zero-bubble"},
}


def _run(strategy: str, parallelism: dict[str, Any], steps: int, **more: Any) -> Result:
    """Stages that are alike: a micro-batch takes each of them 1 s forward and 2 s backward."""
    stages, micro_batches = parallelism["pipeline"], more.pop("micro_batches", _M)
    document = {
        "name": "pipelines",
        "cluster": {
            "workers": stages,
            "compute": {
                "time": {"distribution": "constant", "value": f"{3 * stages * micro_batches} s"},
                "backward": 2 / 3,
            },
        },
        "workload": {
            "parameters": 1000,
            "batch_size": micro_batches,
            "activation": f"{micro_batches} MB",
            "layers": 4 * stages,
        },
        "parallelism": parallelism,
        "strategy": strategy,
        "stop": {"steps": steps},
    }
    return lockstep.simulate(Scenario.model_validate(document))


def _passes(result: Result) -> pd.DataFrame:
    return result.records[result.records["event"] == "pass"]


def orders() -> str:
    """A row for each order: the time of a mini-batch, the bubble, and what stages keep."""
    lines = [
        "| | a mini-batch takes | bubble | activations kept, stage 0 to 3 |",
        "|---|---|---|---|",
    ]
    for shown, (strategy, how) in _ORDERS.items():
        passes = _passes(_run(strategy, {"pipeline": _K, "micro_batches": _M} | how, _STEPS))
        busy = (passes["end"] - passes["start"]).groupby(passes["node"]).sum().max() / _STEPS
        takes = (passes["end"].max() - passes["start"].min()) / _STEPS
        most = passes.groupby("node")["nbytes"].max() / 1e6 / 4  # of a stage's four layers, a micro-batch: 1
        kept = ", ".join(f"{each:g}" for each in most)
        lines.append(f"| {shown} | {takes:.1f} s | {100 * (1 - busy / takes):.0f}% | {kept} |")
    return "\n".join([*lines, ""])


def pictures() -> str:
    """What each stage does when, one mini-batch of four micro-batches: a row a stage."""
    blocks = []
    for name, how in _DRAWN.items():
        passes = _passes(_run("all-reduce", {"pipeline": 2, "micro_batches": 4} | how, 1, micro_batches=4))
        column = 1 / how.get("chunks", 1)  # seconds of a forward pass
        late = "backward-weights" if name == "zero-bubble" else ""
        rows = [_row(passes[passes["node"] == stage], column, late) for stage in range(2)]
        blocks.append(f"{name}\n" + "\n".join(f"    {row}" for row in rows))
    return "```text\n" + "\n\n".join(blocks) + "\n```\n"


def _row(passes: pd.DataFrame, column: float, late: str) -> str:
    """Of a stage: second pieces, and passes of the kind that comes `late`, in other characters."""
    cells = ["."] * round(passes["end"].max() / column)
    for each in passes.itertuples():
        number, other = int(each.batches), each.peer >= 2 or each.kind == late  # of two stages
        forward, back = ("⁰¹²³", "ABCD") if other else ("0123", "abcd")
        letter = (forward if each.kind == "forward" else back)[number]
        for place in range(round(each.start / column), round(each.end / column)):
            cells[place] = letter
    return " ".join(cells)


def strategies() -> str:
    """A row for each strategy: four replicas of one device, and of two."""
    lines = [
        "| strategy | one device: samples/s | staleness | two stages: samples/s | staleness | at once |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(strategy_row, STRATEGIES), ""])


def strategy_row(name: str) -> str:
    """Of the table of strategies."""
    cells = [f"`{name}`"]
    for stages in (1, 2):
        try:
            result = lockstep.simulate(_hybrid(name, stages))
        except ScenarioError as error:
            cells += [f"refused: {error.problem}", "", ""]
        else:
            metrics = result.metrics
            cells += [f"{metrics['throughput']:.0f}", f"{metrics['staleness']['mean']:.1f}"]
            if stages > 1:
                cells.append(str(_at_once(_passes(result))))
    return "| " + " | ".join(cells) + " |"


def _hybrid(strategy: str, stages: int) -> Scenario:
    return Scenario.model_validate({
        "name": "hybrid",
        "cluster": {
            "workers": 4 * stages,
            "compute": {"time": {"distribution": "constant", "value": "100 ms"}},
            "network": {"bandwidth": "1 Gbit/s", "latency": "50 us"},
        },
        "workload": {"parameters": 1_000_000, "batch_size": 8, "activation": "1 MB"},
        "parallelism": {"pipeline": stages},
        "strategy": strategy,
        "stop": {"steps": 8},
    })  # fmt: skip


def _at_once(passes: pd.DataFrame) -> int:
    """Mini-batches that a stage has begun and not ended, at most: 1 is a flush between them."""
    spans = passes.groupby(["node", "version"]).agg(start=("start", "min"), end=("end", "max")).reset_index()
    return max(
        int(((of["start"] <= start) & (start < of["end"])).sum())
        for _, of in spans.groupby("node")
        for start in of["start"]
    )


TABLES: dict[str, Callable[[], str]] = {"orders": orders, "pictures": pictures, "strategies": strategies}


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    for name, make in TABLES.items():
        text = between_markers(text, make(), f"{NAME} {name}")
    PAGE.write_text(text, encoding="utf-8")
