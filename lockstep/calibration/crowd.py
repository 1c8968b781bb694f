"""What messages take of a machine's cores: read off what probes of many processes took (`probes.crowded`)."""

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar, nnls

from lockstep.calibration import path, readings
from lockstep.calibration.estimates import Estimates
from lockstep.calibration.probes import PACE_S
from lockstep.machine import cores
from lockstep.scenarios import Scenario

Probes = Mapping[str, Scenario]  # by name
Measured = Mapping[str, Sequence[pd.DataFrame]]  # the records of each probe's runs
CoreSeconds = Mapping[str, Sequence[float]]  # that each of these took
_LEAST_S = 1e-9  # a profile's core-seconds of overheads must be above 0
_CORES = f"{path.PROCESSING}cores"
_CLOSE = 0.01  # to which the number of cores is found


def with_processing(
    estimates: Estimates, crowd: Probes, measured: Measured, core_s: CoreSeconds
) -> Estimates:
    """The same with `network.processing`.

    A step takes some of the cores, too, which a probe without messages tells, and also what a process takes
    for an update of hardly any bytes. What is no overhead of messages is shared out evenly between their
    ends. Overheads were measured in processes that had slept. If crowded ones take less of a core, the rest
    is waiting. A message longer than a train wakes its receiver again. All that work takes longer than so
    many cores would need that are never idle: it is done by `cores`, which are less than there are.
    """
    known = estimates.settings
    large = known.get(f"{path.BURST}train", inf)
    talking = [name for name in crowd if any(_counted(table)[1] for table in measured[name])]
    taken = np.array([seconds for name in crowd for seconds in core_s[name]])
    columns = np.array([_counted(table, large) for name in crowd for table in measured[name]], float)
    if not talking or not (taken > 0).all() or not columns[:, 0].all():
        return estimates
    alone = next(name for name in crowd if name not in talking)
    update_s = min(_update_s(measured[alone]), known["apply_overhead"])
    of_path = {key: value for key, value in known.items() if "intra_host" not in key}
    hot = {**of_path, "apply_overhead": update_s}
    lasts_s = {name: path.update_s(probe, hot) for name, probe in crowd.items()}
    updates = [lasts_s[name] * (table["event"] == "work").sum() for name in crowd for table in measured[name]]
    overheads = known["network.message_overhead"] + known["network.receive_overhead"]
    relative = columns / taken[:, None]  # so that relative errors count
    units = np.maximum(
        relative.max(axis=0), np.finfo(float).tiny
    )  # nnls stops early where columns differ much
    found_s, _ = nnls(relative / units, 1 - np.array(updates) / taken)
    step_s, message_s, byte_s, large_s = (found_s / units).tolist()
    found = {
        "overheads": max(min(message_s, overheads), _LEAST_S),
        "update": max(update_s, _LEAST_S),
        "per_message": max(0.0, message_s - overheads) / 2,
        "per_byte": byte_s / 2,
        "gradient": step_s,
        "cores": float(cores()),
    }
    if large_s:
        found |= {"per_large_message": large_s / 2, "large": large}
    processing = {f"{path.PROCESSING}{key}": value for key, value in found.items()}
    exchanges = {name: [readings.exchanges_s(records) for records in measured[name]] for name in talking}
    exchanges = {name: runs for name, runs in exchanges.items() if sum(map(len, runs)) >= path.LEAST}
    seen = {name: crowd[name] for name in exchanges}
    processing[_CORES] = _cores(seen, exchanges, {**of_path, **processing})
    simulated = path.simulated(seen, {**of_path, **processing})
    evidence = {key: dict(value) for key, value in estimates.evidence.items()}
    rows = [path.row(name, runs, simulated[name]) for name, runs in exchanges.items()]
    evidence["network"]["probes"] = [*evidence["network"]["probes"], *rows]
    return Estimates({**known, **processing}, estimates.intervals, evidence)


def _cores(
    probes: Probes, exchanges: Mapping[str, Sequence[np.ndarray]], at_most: Mapping[str, float]
) -> float:
    """With how many cores simulated steps last as long as the measured ones on average; not more than all.

    `at_most`: the settings of a cluster where none is ever idle in vain.
    """
    steps = np.array([PACE_S + np.concatenate(exchanges[name]).mean() for name in probes])

    def off(number: float) -> float:
        found = path.simulated(probes, {**at_most, _CORES: number})
        lasts = np.array([PACE_S + found[name] for name in probes])
        return float((np.log(lasts / steps) ** 2).sum())

    all_of_them = at_most[_CORES]
    best = minimize_scalar(
        off, bounds=(all_of_them / 2, all_of_them), method="bounded", options={"xatol": _CLOSE}
    )
    return all_of_them if off(all_of_them) <= best.fun else float(best.x)


def _update_s(tables: Sequence[pd.DataFrame]) -> float:
    """The median of updates by workers."""
    work = pd.concat([table[table["event"] == "work"] for table in tables])
    return float((work["end"] - work["start"]).median())


def _counted(records: pd.DataFrame, large: float = inf) -> tuple[int, int, float, int]:
    """How many steps, messages, bytes of messages, and messages of more than `large` bytes."""
    nbytes = records["nbytes"][records["event"] == "message"]
    steps = int((records["event"] == "gradient").sum())
    return steps, len(nbytes), float(nbytes.sum()), int((nbytes > large).sum())
