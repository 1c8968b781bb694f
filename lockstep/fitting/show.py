"""A fit for people: each value, each row, and how far to trust them, in words."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.analysis.words import number, percent
from lockstep.fitting import Fit, Found, Together
from lockstep.fitting.keys import Free
from lockstep.fitting.table import Measure, Use
from lockstep.terminal import show_table, titled

_UNITS = {Measure.THROUGHPUT: "samples/s", Measure.STEP: "s"}
_OURS = ("measured", "predicted", "low", "high", "error", "use", "left_out")


def show(fit: Fit, written: list[Path]) -> None:
    """Both tables, the verdict, and what was written."""
    values = titled(f"Fitted: {fit.scenario.name}", "", "found", "95%")
    for key in fit.keys:
        values.add_row(key.key, _short(key, fit.free[key.key].value), _interval(key, fit.free[key.key]))
    show_table(values)
    show_table(_rows(fit))
    for sentence in verdict(fit):
        print(sentence)
    if written:
        print(f"Written: {', '.join(map(str, written))}.")
        print(f"To extrapolate: --set cluster.profile={written[0]}")


def _rows(fit: Fit) -> Any:
    keys = [str(column) for column in fit.rows if column not in _OURS]
    parts = {key: key.rpartition(".")[2] for key in keys}
    heads = [part if [*parts.values()].count(part) == 1 else key for key, part in parts.items()]
    table = titled("Measured and predicted", *heads)
    unit, divided = _UNITS[fit.measure], fit.rows["left_out"].isna().all()
    for head in (f"measured {unit}", f"predicted {unit}", "error", *([] if divided else ["left out"])):
        table.add_column(head, justify="right")
    table.add_column("use")
    for row in fit.rows.to_dict("records"):
        cells = ["" if row[key] is None or row[key] != row[key] else str(row[key]) for key in keys]
        numbers = [number(row["measured"]), number(row["predicted"]), percent(row["error"], sign=True)]
        numbers += [] if divided else [percent(row["left_out"], sign=True)]
        table.add_row(*cells, *numbers, row["use"])
    return table


def _short(key: Free, value: float) -> str:
    return str(key.written(value, 4)) if not key.whole else f"{round(value):,}"


def _interval(key: Free, found: Found) -> str:
    if found.low is None and found.high is None:
        return "not known"
    if found.high is None or found.low is None:
        return f"{_short(key, found.low)} or more" if found.low else f"{_short(key, found.high or 0)} or less"
    return f"{_short(key, found.low)} to {_short(key, found.high)}"


def verdict(fit: Fit) -> Iterator[str]:
    """What the fit is worth, a sentence at a time."""
    rows = fit.rows
    fitted = rows[rows["use"] == str(Use.FIT)]
    other = rows[rows["use"] != str(Use.FIT)]
    yield f"Fitted rows: {_errors(fitted['error'].to_numpy())}."
    if len(other):
        yield f"Predicted rows: {_errors(other['error'].to_numpy())}."
    if not rows["left_out"].isna().all():
        out = rows["left_out"].dropna().to_numpy(float)
        yield f"Left out in turn, and predicted from the others: {_errors(out)}."
    for each in fit.flat:
        yield _cannot_tell(each)
    flat = {key for each in fit.flat for key in each.factors}
    for key in fit.keys:
        found = fit.free[key.key]
        missing = [word for word, end in (("lower", found.low), ("upper", found.high)) if end is None]
        said = len(missing) == 2 and key.key in flat
        if missing and fit.noise is not None and not said:
            yield f"These rows set no {' and no '.join(missing)} limit to {key.key}."
    if fit.noise is None:
        yield "As many rows as values: nothing is left to say how sure these are. Give sd, or more rows."
    for name in fit.at_end:
        yield f"The best {name} is an end of its range; a wider one may fit better: --free {name}=LOW..HIGH"
    if fit.more > 1:
        yield f"Errors are {number(fit.more)} times what sd can explain: the model misses something."
    if fit.identifiable and fit.noise is not None:
        yield "The rows tell all values apart."


def _cannot_tell(each: Together) -> str:
    if len(each.factors) == 1:
        (name,) = each.factors
        return f"These rows do not tell {name}: twice or half of it changes no row by more than they scatter."
    changes = [
        f"{name} {'×' if factor > 1 else '÷'} {number(math.exp(abs(math.log(factor))))}"
        for name, factor in each.factors.items()
    ]
    together = f"{', '.join(changes[:-1])} together with {changes[-1]}"
    return (
        f"These rows cannot tell {' from '.join(each.factors)}: {together} changes them by at most "
        f"{percent(each.change)}."
    )


def _errors(errors: Any) -> str:
    found = np.abs(np.asarray(errors, float))
    if len(found) == 1:
        return f"off by {percent(float(found[0]))}"
    return f"off by {percent(float(np.median(found)))} in the median, {percent(float(found.max()))} at most"
