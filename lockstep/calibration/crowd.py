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
_CLOSE = 0.005  # of all cores, to which their number is found


def with_processing(
    estimates: Estimates, crowd: Probes, measured: Measured, core_s: CoreSeconds
) -> Estimates:
    """The same with `network.processing`, and a row of evidence for each probe with messages."""
    known = {key: value for key, value in estimates.settings.items() if "intra_host" not in key}
    large = known.get(f"{path.BURST}train", inf)
    counts = {name: np.array([_counted(table, large) for table in measured[name]], float) for name in crowd}
    talking = [name for name in crowd if counts[name][:, 1].any()]
    taken = {name: np.array(core_s[name]) for name in crowd}
    steps = np.concatenate([rows[:, 0] for rows in counts.values()])
    if not talking or not steps.all() or not all((seconds > 0).all() for seconds in taken.values()):
        return estimates
    found = _costs(known, crowd, measured, counts, taken)
    exchanges = {name: [readings.exchanges_s(records) for records in measured[name]] for name in talking}
    seen = {name: crowd[name] for name in talking if sum(map(len, exchanges[name])) >= path.LEAST}
    found[_CORES] = _cores(seen, exchanges, {**known, **found, _CORES: float(cores())})
    simulated = path.simulated(seen, {**known, **found})
    evidence = {key: dict(value) for key, value in estimates.evidence.items()}
    rows = [path.row(name, exchanges[name], simulated[name]) for name in seen]
    evidence["network"]["probes"] = [*evidence["network"]["probes"], *rows]
    return Estimates({**estimates.settings, **found}, estimates.intervals, evidence)


def _costs(
    known: Mapping[str, float],
    crowd: Probes,
    measured: Measured,
    counts: Mapping[str, np.ndarray],
    taken: Mapping[str, np.ndarray],
) -> dict[str, float]:
    """What messages, and steps, take of cores, by key: least squares of relative errors.

    `counts`: a row for each run of a probe, as by `_counted`; `taken`: its core-seconds. The probe without
    messages tells what a step takes, and also what a process takes for an update of hardly any bytes. What is
    no overhead of messages is shared out evenly between their ends. Overheads were measured in processes that
    had slept: if crowded ones take less of a core, the rest is waiting. A message longer than a train wakes
    its receiver again.
    """
    alone = next(name for name in crowd if not counts[name][:, 1].any())
    update_s = min(_update_s(measured[alone]), known["apply_overhead"])
    of_busy_processes = {**known, "apply_overhead": update_s}
    of_updates = []
    for name, probe in crowd.items():
        each_s = path.update_s(probe, of_busy_processes)
        of_updates += [each_s * (table["event"] == "work").sum() for table in measured[name]]
    core_s = np.concatenate([taken[name] for name in crowd])
    columns = np.concatenate([counts[name] for name in crowd]) / core_s[:, None]
    units = np.maximum(columns.max(axis=0), np.finfo(float).tiny)  # bytes are many more than steps
    solution, _ = nnls(columns / units, 1 - np.array(of_updates) / core_s)
    step_s, message_s, byte_s, large_s = (solution / units).tolist()
    overheads = known["network.message_overhead"] + known["network.receive_overhead"]
    large = known.get(f"{path.BURST}train")
    found = {
        "overheads": max(min(message_s, overheads), _LEAST_S),
        "update": max(update_s, _LEAST_S),
        "per_message": max(0.0, message_s - overheads) / 2,
        "per_byte": byte_s / 2,
        "gradient": step_s,
    }
    if large is not None:
        found |= {"per_large_message": large_s / 2, "large": large}
    return {f"{path.PROCESSING}{key}": value for key, value in found.items()}


def _cores(
    probes: Probes, exchanges: Mapping[str, Sequence[np.ndarray]], settings: Mapping[str, float]
) -> float:
    """How many cores, none of them ever idle in vain, do that work in the time that it took; at most all.

    With so many, logarithms of simulated steps differ least from those of measured ones (their means).
    """
    steps = np.array([PACE_S + np.concatenate(exchanges[name]).mean() for name in probes])

    def misfit(number: float) -> float:
        found = path.simulated(probes, {**settings, _CORES: number})
        lasts = np.array([PACE_S + found[name] for name in probes])
        return float((np.log(lasts / steps) ** 2).sum())

    all_of_them = settings[_CORES]
    least = max(1.0, all_of_them / 2)
    if least == all_of_them:
        return all_of_them
    options = {"xatol": _CLOSE * all_of_them}
    best = minimize_scalar(misfit, bounds=(least, all_of_them), method="bounded", options=options)
    return all_of_them if misfit(all_of_them) <= best.fun else float(best.x)


def _update_s(tables: Sequence[pd.DataFrame]) -> float:
    """The median of updates by workers."""
    work = pd.concat([table[table["event"] == "work"] for table in tables])
    return float((work["end"] - work["start"]).median())


def _counted(records: pd.DataFrame, large: float) -> tuple[int, int, float, int]:
    """How many steps, messages, bytes of messages, and messages of more than `large` bytes."""
    nbytes = records["nbytes"][records["event"] == "message"]
    steps = int((records["event"] == "gradient").sum())
    return steps, len(nbytes), float(nbytes.sum()), int((nbytes > large).sum())
