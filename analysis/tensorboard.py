"""A run as TensorBoard scalars, with the same tags from both engines (docs/metrics.md).

Only the package `tensorboard` is needed, neither torch nor TensorFlow. The same run gives the same bytes in a
file of the same name: its times are seconds since the run's first mini-batch, not those of a calendar.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lockstep.analysis.metrics import of_models
from lockstep.analysis.records import of
from lockstep.analysis.result import Result
from lockstep.scenarios import ScenarioError, dump

WINDOWS = 50  # of a run, all of the same length
_SUBFOLDERS = {"simulator": "predicted", "executor": "measured"}


class Scalar(NamedTuple):
    """A point of a curve; `time` in s since the first mini-batch, `step` in updates."""

    tag: str
    step: int
    time: float
    value: float


def check() -> None:
    """Raise ScenarioError if the package is not there."""
    if find_spec("tensorboard") is None:
        problem = "tensorboard is not installed; pip install 'lockstep[tensorboard]'"
        raise ScenarioError(problem, key="--tensorboard")


def scalars(result: Result) -> Iterator[Scalar]:
    """Held-out loss and metrics at each snapshot; mean staleness and throughput (samples/s) by window."""
    names = result.curve.columns[2:]
    for time, version, *values in result.curve.itertuples(index=False):
        for name, value in zip(names, values, strict=True):
            if name == "loss" or not np.isnan(value):
                yield Scalar(name, int(version), time, value)
    begin, finish = result.span
    if finish <= begin:
        return
    updates = of(result.records, "update", ["node", "end", "version", "staleness", "batches"])
    edges = np.linspace(begin, finish, WINDOWS + 1)

    def counted(times: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        return np.histogram(times, edges, weights=weights)[0]

    times = updates["end"].to_numpy()
    plan = result.plan  # each shard notes them all, of every slice
    copies = sum(len(group.shards) for group in plan.groups)
    samples = counted(times, updates["batches"].to_numpy()) * result.scenario.workload.batch_size / copies
    first = updates[updates["node"] == plan.owners.ranks[0]]  # in the order of time
    versions = np.append(0, np.maximum.accumulate(first["version"].to_numpy() + 1))
    steps = versions[np.searchsorted(first["end"].to_numpy(), edges[1:], "right")]
    seen = updates[of_models(updates["batches"].to_numpy())]
    stale, number = (
        counted(seen["end"].to_numpy(), seen["staleness"].to_numpy()),
        counted(seen["end"].to_numpy()),
    )
    ends = edges[1:] - begin
    for window, (step, time) in enumerate(zip(steps.tolist(), ends.tolist(), strict=True)):
        yield Scalar("throughput", step, time, samples[window] / ends[0])
        if number[window]:
            yield Scalar("staleness", step, time, stale[window] / number[window])


def write(result: Result, folder: Path) -> Path:
    """Write an event file to `predicted` or `measured` in the folder, in the place of an earlier one."""
    check()
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.summary.writer.record_writer import RecordWriter

    indented = "".join(f"    {line}\n" for line in dump(result.scenario).splitlines())  # Markdown's code
    text = TensorProto(
        dtype=DT_STRING,
        string_val=[indented.encode()],
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
    )
    kind = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    scenario = Summary.Value(tag="scenario/text_summary", tensor=text, metadata=kind)
    path = folder / _SUBFOLDERS[result.engine] / f"events.out.tfevents.{result.engine}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        records = RecordWriter(file)
        records.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
        records.write(Event(wall_time=0.0, summary=Summary(value=[scenario])).SerializeToString())
        for tag, step, time, value in scalars(result):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            records.write(Event(wall_time=time, step=step, summary=summary).SerializeToString())
    return path
