"""One run: its records, and what can be said from them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.analysis.folders import INCOMPLETE, replacing
from lockstep.analysis.given import Made, given
from lockstep.analysis.records import values
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, dump

if TYPE_CHECKING:
    import pandas as pd

    from lockstep.analysis.bottleneck import Bottleneck

# What `Result.save` writes of a run.
FILES = (
    *("scenario.yaml", "records.parquet", "parameters.npy", "utilisation.parquet", "interleaving.parquet"),
    "result.json",
)


@dataclass(frozen=True, repr=False)
class Result:
    """One run: its records, and what can be said from them."""

    engine: str
    """What made the run: "simulator" or "executor"."""
    plan: Plan
    """What was run: who did what, and owned which parameters."""
    records: "pd.DataFrame"
    """Everything that happened: a row for each event, in the order in which they ended (below)."""
    gradient_s: float
    """Mean seconds of one gradient on a worker of speed 1: the base of speedup."""
    parameters: np.ndarray | None = None
    """The final flat vector, shape (n,); None when nothing was learned."""
    warnings: Sequence[str] = field(default_factory=tuple)
    """What the engine warns of; `metrics["warnings"]` has also disturbances and what the metrics show."""
    disturbances: Sequence[str] = field(default_factory=tuple)
    """What makes the times of a real run doubtful, such as a host that gave its processors to others."""
    overruns: Sequence[str] = field(default_factory=tuple)
    """That gradients of a real run took longer than their emulated time, unless that was expected."""
    attempts: int = 1
    """How many times it was measured: again while it was disturbed."""
    core_s: float | None = None
    """Core-seconds that a real run took of its machine, from its start: all its processes, and the kernel.

    Not kept by `save`.
    """
    utilisation: "pd.DataFrame | None" = None
    """How busy links and processors were: a row per resource and interval; None where it is not known.

    Columns: `resource` ("server 0's down-link", or "server 0" for its processor), `start` and `end` (s since
    the job started), `busy` (fraction of the interval, in [0, 1]), `bytes` (carried; NaN for a processor);
    and the fields of its `ResourceId`: `kind`, `owner`, `number`, `direction` and `other`.
    """
    interleaving: "pd.DataFrame | None" = None
    """What a real run can be repeated from (`lockstep.replay`): a row for each `Entry`, node after node.

    None from the simulator.
    """

    @property
    def scenario(self) -> Scenario:
        """What was run, with everything that presets and profiles say filled in."""
        return self.plan.scenario

    @property
    def disturbed(self) -> bool:
        """Whether the times of a real run are doubtful."""
        return bool(self.disturbances or self.overruns)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the run: `throughput`, `staleness`, `speedup`, … (docs/metrics.md), computed once.

        What `--json` prints: numbers, texts, lists and mappings only; None where a metric does not exist.
        """
        from lockstep.analysis.metrics import metrics

        return metrics(self)

    @cached_property
    def span(self) -> tuple[float, float]:
        """When the first mini-batch started and when the last update was applied.

        Both in seconds since the job started; the same if no update was applied.
        """
        from lockstep.analysis.computations import computing

        records = given(self, "records")
        starts = values(records, computing(records), ["start"])["start"]
        ends = values(records, "update", ["end"])["end"]
        start = float(starts.min()) if len(starts) else 0.0
        return start, float(ends.max()) if len(ends) else start

    @cached_property
    def breakdown(self) -> "pd.DataFrame":
        """Where each worker's time went, as fractions of the run's duration: a row a worker.

        Columns `compute`, `update`, `send`, `network` and `wait` (docs/metrics.md), which sum to 1; all 0 in
        a run that took no time.
        """
        import pandas as pd

        from lockstep.analysis.breakdown import PARTS

        return pd.DataFrame(dict(zip(PARTS, self.shares, strict=True)))

    @cached_property
    def shares(self) -> np.ndarray:
        """The columns of `breakdown` as an array, shape (5, workers)."""
        from lockstep.analysis.breakdown import shares

        return shares(given(self, "records"), self.scenario.cluster.workers, *self.span)

    @cached_property
    def memory(self) -> "pd.DataFrame":
        """The high-water mark of each device in bytes: a row a worker, docs/memory.md has the columns.

        `activations` and `buffers` are as recorded, where gradients are computed in passes; all else is as
        predicted from the plan.
        """
        from lockstep.analysis.memory import memory

        return memory(self)

    @cached_property
    def bottleneck(self) -> "Bottleneck | None":
        """What limits the run, estimated from shares of its time; None if it did nothing."""
        from lockstep.analysis.bottleneck import bottleneck

        return bottleneck(self)

    @cached_property
    def busy(self) -> dict[str, float] | None:
        """Of every link and processor, by name, the share of the run that it was busy; None of a real run."""
        from lockstep.analysis.utilisation import mean_busy

        return mean_busy(self)

    @property
    def curve(self) -> "pd.DataFrame":
        """What was evaluated on held-out data: a row for each snapshot; none if nothing was learned.

        Columns `time` (s since the first mini-batch started), `version` (updates applied until then), `loss`
        and `accuracy` (in [0, 1]; NaN for a problem, which has none), and those of the task's other metrics.
        """
        import pandas as pd

        from lockstep.analysis.curve import curve

        return pd.DataFrame(curve(self))

    def to_json(self) -> str:
        """The metrics as one JSON object, without NaN or infinity."""
        return json.dumps(self.metrics, allow_nan=False)

    def save(self, directory: str | Path) -> None:
        """Write the run to a folder, which is made; what an earlier run left there is replaced, all at once.

        `scenario.yaml`, `result.json` (the metrics), `records.parquet` and, if there are any,
        `parameters.npy`, `utilisation.parquet` and `interleaving.parquet`. `analysis.saved.load` reads it
        back. Raises OSError.
        """
        from lockstep.analysis.parquet import write

        text = self.to_json()
        with replacing(Path(directory), FILES) as new:
            (new / "scenario.yaml").write_text(dump(self.scenario), encoding="utf-8")
            if self.parameters is not None:
                np.save(new / "parameters.npy", self.parameters)
            for name in ("records", "utilisation", "interleaving"):
                if (table := given(self, name)) is not None:
                    write(table, new / f"{name}.parquet")
            (new / "result.json").write_text(text + "\n", encoding="utf-8")
        if any(Path(directory).glob(f"{INCOMPLETE}*")):
            from lockstep.analysis.incomplete import discard  # which takes pandas

            discard(Path(directory))

    def to_tensorboard(self, directory: str | Path) -> Path:
        """Write scalars for TensorBoard to `predicted` or `measured` below the folder, and return the file.

        Needs `pip install 'lockstep[tensorboard]'`; raises ScenarioError without it.
        """
        from lockstep.analysis.tensorboard import write

        return write(self, Path(directory))

    @property
    def row(self) -> dict[str, Any]:
        """The run as a row of a tidy table: what `analysis.table.row` gives."""
        from lockstep.analysis.table import row

        return row(self)

    @property
    def table(self) -> "pd.DataFrame":
        """The main metrics in words and units, for people: a row each, one column of texts."""
        import pandas as pd

        from lockstep.analysis.summary import DONE, main_metrics

        return pd.DataFrame({DONE[self.engine]: main_metrics(self)})

    def __repr__(self) -> str:
        from lockstep.analysis.summary import headline

        return headline(self)

    def _repr_html_(self) -> str:
        from lockstep.analysis.notebook import html

        return html(self)


for _name in ("records", "utilisation"):  # made when they are first looked at
    setattr(Result, _name, Made(_name))
