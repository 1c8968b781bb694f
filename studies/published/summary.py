"""Sums up what was predicted: errors over all rows, over those whose mechanism is modelled, and the bars."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lockstep.studies.published.predicting import Fitted
from lockstep.studies.published.table import Table

Found = dict[str, Any]
DIFFERENT = 0.05  # rows that were measured nearer to each other are not ranked
MEDIAN, NINE_OF_TEN, TAU = 0.05, 0.12, 0.9  # the bars


Study = tuple[Sequence[Fitted], pd.DataFrame]


def summarise(study: Study, once: Study) -> Found:
    """What `--json` prints (docs/published.md); once: with what belongs to a machine fitted once."""
    fits, rows = study
    groups = _groups(rows)
    errors = {name: statistics(its) for name, its in groups.items()}
    ranks = {name: ranking(its) for name, its in groups.items() if name in ("all", "modelled")}
    tables = list(dict.fromkeys(fit.series.table.name for fit in fits))
    return {
        "schema": 1,
        "errors": errors,
        "ranking": ranks,
        "bars": _bars(errors["modelled"], ranks["modelled"]),
        "once": {
            "numbers": [sum(len(fit.free) for fit in each) for each in (fits, once[0])],
            **_both(rows, once[1]),
            "tables": [_once(name, study, once) for name in tables],
        },
        "tables": [
            _table(name, [fit for fit in fits if fit.series.table.name == name], rows) for name in tables
        ],
    }


def _groups(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    predicted = rows[rows["use"] == "predict"]
    modelled = predicted[predicted["modelled"]]
    return {
        "all": predicted,
        "modelled": modelled,
        "modelled, measured": modelled[~modelled["simulated"]],
        "modelled, not mended": modelled[~modelled["mended"]],
        "not modelled": predicted[~predicted["modelled"]],
    }


def _both(rows: pd.DataFrame, once: pd.DataFrame) -> Found:
    """Errors of modelled rows that both predict, by each, and of rows that the second predicts besides."""
    names = ["table", "series", "label"]
    apart, together = (_groups(each)["modelled"].set_index(names) for each in (rows, once))
    return {
        "apart": statistics(apart),
        "once": statistics(together[together.index.isin(apart.index)]),
        "besides": statistics(together[~together.index.isin(apart.index)]),
    }


def _once(name: str, *studies: Study) -> Found:
    """Of a table, first as it is, then with what belongs to a machine fitted once; and by which series."""
    fits = [[fit for fit in its if fit.series.table.name == name] for its, _ in studies]
    found = [fit for fit in fits[1] if len(fit.free) > 1]
    return {
        "name": name,
        "series": len(fits[0]),
        "numbers": [sum(len(fit.free) for fit in its) for its in fits],
        **_both(*(rows[rows["table"] == name] for _, rows in studies)),
        "by": [{"series": fit.series.name, "free": fit.free, "at_end": [*fit.at_end]} for fit in found],
    }


def statistics(rows: pd.DataFrame) -> Found:
    """Of the errors' absolute values; None where there are no rows."""
    size = rows["error"].abs().to_numpy(float)
    if not len(size):
        return {"rows": 0, "median": None, "p90": None, "max": None, "within": None}
    return {
        "rows": len(size),
        "median": float(np.median(size)),
        "p90": float(np.quantile(size, 0.9)),
        "max": float(size.max()),
        "within": float((size <= NINE_OF_TEN).mean()),
    }


def ranking(rows: pd.DataFrame) -> Found:
    """Kendall's τ: pairs of a series' rows whose measurements differ by more than 5% of the greater.

    `tau` compares what was measured; more devices are nearly always faster. `tau_each` compares what a device
    brings, which says how well a configuration scales; of pairs that differ so much in that. None: no pairs.
    """
    found: Found = {}
    for name, per in (("", 1.0), ("_each", rows["workers"])):
        faster = rows["measure"] == "throughput"
        sides = [(rows[side] / per).where(faster, 1 / rows[side]) for side in ("measured", "predicted")]
        score = [0, 0]
        for _, places in rows.groupby(["table", "series"], sort=False).groups.items():
            for a, b in combinations(places, 2):
                real, said = (side[a] - side[b] for side in sides)
                if abs(real) > DIFFERENT * max(sides[0][a], sides[0][b]):
                    score[0] += int(np.sign(real * said))
                    score[1] += 1
        found |= {f"tau{name}": score[0] / score[1] if score[1] else None, f"pairs{name}": score[1]}
    return found


def _bars(errors: Found, ranks: Found) -> list[Found]:
    return [
        _bar("median error", errors["median"], MEDIAN),
        _bar("90th percentile of errors", errors["p90"], NINE_OF_TEN),
        _bar("Kendall's τ of configurations", ranks["tau"], TAU, at_least=True),
    ]


def _bar(what: str, value: float | None, bar: float, at_least: bool = False) -> Found:
    met = None if value is None else (value >= bar if at_least else value <= bar)
    return {"what": what, "value": value, "bar": bar, "at_least": at_least, "met": met}


def _table(name: str, fits: Sequence[Fitted], rows: pd.DataFrame) -> Found:
    table: Table = fits[0].series.table
    its = rows[rows["table"] == name]
    predicted = its[its["use"] == "predict"]
    return {
        "name": name,
        "title": table.title,
        "source": table.comments[-1].removeprefix("Source: "),
        "measure": table.measure,
        "simulated": table.simulated,
        "mended": table.mended,
        "errors": statistics(predicted),
        "modelled": statistics(predicted[predicted["modelled"]]),
        "causes": table.causes,
        "series": [
            {
                "name": fit.series.name,
                "free": fit.free,
                "at_end": [*fit.at_end],
                "rows": its.loc[its["series"] == fit.series.name, _COLUMNS].to_dict("records"),
            }
            for fit in fits
        ],
    }


_COLUMNS = ["label", "workers", "measured", "predicted", "error", "use", "modelled", "cause"]
