"""What must hold of every run's records and metrics, however it went."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import numpy as np

from lockstep.analysis.losses import CUT_OFF, computed
from lockstep.analysis.records import of
from lockstep.analysis.result import Result

_ROUNDING = 1e-9  # s


def broken(result: Result) -> Iterator[str]:
    """What does not hold, in words."""
    for key, value in _numbers(result.metrics):
        if not isfinite(value):
            yield f"{key} is {value}"
    yield from _times(result)
    yield from _versions(result)
    yield from _samples(result)
    yield from _steps(result)


def _numbers(metrics: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{above}{key}.")
        elif isinstance(value, int | float):
            yield f"{above}{key}", value


def _times(result: Result) -> Iterator[str]:
    records = result.records
    if (backwards := int((records["end"] < records["start"] - _ROUNDING).sum())) != 0:
        yield f"{backwards} records end before they begin"
    if (early := int((records["start"] < -_ROUNDING).sum())) != 0:
        yield f"{early} records begin before the run"
    gradients = of(records, "gradient", ["node", "start", "end"])
    gradients = gradients[gradients["end"] > gradients["start"]]
    if (twice := int(gradients.duplicated(["node", "start"]).sum())) != 0:
        yield f"{twice} gradients are there twice"
    availability = result.metrics.get("availability")
    if availability is not None and not -_ROUNDING <= availability <= 1 + _ROUNDING:
        yield f"availability is {availability}"


def _versions(result: Result) -> Iterator[str]:
    """The updates that count lead from an owner's first version to its last, one by one."""
    updates = of(result.records, "update", ["node", "version"])
    # who is not evaluated may go on from the checkpoint of who is
    updates = updates[updates["node"].isin(result.plan.owners.evaluated)]
    for owner, versions in updates.groupby("node")["version"]:
        each = np.unique(versions)
        if len(each) and (each[0] != 0 or each[-1] != len(each) - 1):
            yield f"versions of rank {owner} are not one after the other"


def _samples(result: Result) -> Iterator[str]:
    """Every mini-batch that was computed to its end is applied, was dropped, or is lost."""
    metrics, batch, made = result.metrics, result.scenario.workload.batch_size, computed(result)
    accounted = metrics["samples"] // batch + metrics["dropped"] + (metrics.get("lost_samples") or 0) // batch
    devices = result.scenario.split.devices
    if devices == 1 and ("lost_samples" in metrics) and accounted != made:
        yield f"{made} mini-batches were computed, and {accounted} are accounted for"


def _steps(result: Result) -> Iterator[str]:
    """No worker leaves a mini-batch out, and none is applied twice."""
    if result.scenario.split.devices > 1:
        return
    gradients = of(result.records, "gradient", ["node", "start", "kind", "version"])
    for worker, own in gradients.sort_values("start", kind="stable").groupby("node"):
        step = own["version"].to_numpy()
        done = np.where(own["kind"] == CUT_OFF, step - 1, step)  # it is to be begun again
        before = np.concatenate([[-1], done[:-1]])
        if (skipped := np.flatnonzero(step > before + 1)).size:
            at = skipped[0]
            yield f"worker {worker} goes on with mini-batch {step[at]} after {before[at]}"
    whole = gradients[gradients["kind"] != CUT_OFF]
    different = len(whole.drop_duplicates(["node", "version"]))
    applied = result.metrics["samples"] // result.scenario.workload.batch_size
    if applied > different:
        yield f"{applied} mini-batches are applied, of {different} that there are"
