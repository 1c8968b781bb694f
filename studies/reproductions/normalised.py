"""Claims about accumulated gradient normalisation beside elastic averaging."""

from functools import partial

import numpy as np

from lockstep.studies.reproductions.claim import Check, Claim, Interval, Runs
from lockstep.studies.reproductions.metrics import Array, learned

_SOURCE = "Hermans, Spanakis and Möckel 2017; Hermans 2017 (thesis)"
_BETA = 0.9  # n·η·ρ, as Zhang et al. 2015 have it
_WORKERS = 8
RATES = {"agn": (0.1, 0.3, 1.0), "aeasgd": (0.1, 0.3, 1.0)}
WINDOWS = (5, 15, 45)
TARGET = 0.25


def _variants(windows: tuple[int, ...]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name, rates in RATES.items():
        for window in windows:
            for rate in rates:
                changes: dict[str, object] = {
                    "strategy.name": name,
                    "strategy.communication_window": window,
                    "strategy.learning_rate": rate,
                }
                if name == "aeasgd":
                    changes["strategy.rho"] = _BETA / (_WORKERS * rate)
                found[_called(name, window, rate)] = changes
    return found


def _called(name: str, window: int, rate: float) -> str:
    return f"{name}, window {window}, rate {rate:g}"


def _in_its_time(runs: Runs) -> list[Check]:
    def best(name: str, metric: str) -> Array:
        return runs.tuned([_called(name, 10, rate) for rate in RATES[name]], "seconds", metric)

    worse = best("agn", "error") - best("aeasgd", "error")
    slower = Interval.of_ratio(best("agn", "seconds"), best("aeasgd", "seconds"))
    return [
        Check("error of AGN − of AEASGD, percentage points", Interval.of(worse), below=1.0),
        Check(f"seconds to a loss of {TARGET}, AGN ÷ AEASGD", slower, below=1.1),
    ]


def _spread(runs: Runs, name: str) -> Array:
    """For each seed, how much more than the best of all settings the loss is on average, in ln."""
    losses = [runs[_called(name, window, rate), "loss"] for window in WINDOWS for rate in RATES[name]]
    logarithms = np.log(np.array(losses))
    return np.asarray(logarithms.mean(0) - logarithms.min(0))


def _sensitive(runs: Runs) -> list[Check]:
    agn, elastic = _spread(runs, "agn"), _spread(runs, "aeasgd")
    return [
        Check("ln of AGN's loss, mean of settings − best", Interval.of(agn)),
        Check("the same of AEASGD", Interval.of(elastic)),
        Check("AGN's − AEASGD's", Interval.of(agn - elastic), below=0.0),
    ]


CLAIMS = [
    Claim(
        name="agn-easgd",
        statement="AGN reaches elastic averaging's result in its time, or before.",
        source=_SOURCE,
        published="MNIST: a better rate of convergence than AEASGD's",
        variants=_variants((10,)),
        measure=partial(learned, target=TARGET),
        checks=_in_its_time,
    ),
    Claim(
        name="agn-sensitivity",
        statement="AGN is less sensitive to its window and its rate than elastic averaging.",
        source=_SOURCE,
        published="fewer settings to tune; no figure",
        variants=_variants(WINDOWS),
        checks=_sensitive,
    ),
]
