"""Claims about how many local steps workers can sum up before they push: DOWNPOUR and AGN."""

import numpy as np

from lockstep.studies.reproductions.claim import Check, Claim, Interval, Runs
from lockstep.studies.reproductions.metrics import Array, crossing

WINDOWS = {"downpour-blocking": (1, 2, 3, 5, 8), "agn": (5, 12, 20, 40, 80)}
FAILS = 10.0  # % of held-out errors from which a window is too long


def _downpour(runs: Runs) -> list[Check]:
    worse = Interval.of_ratio(runs["window 3", "loss"], runs["window 1", "loss"])
    return [
        Check("loss at window 3 ÷ at window 1", worse, above=1.0),
        Check("error at window 10, % (90 by chance)", runs.mean("window 10", "error"), above=50.0),
        Check("error at window 20, %", runs.mean("window 20", "error"), above=50.0),
        Check("error of AGN at window 20, %", runs.mean("AGN, window 20", "error"), below=20.0),
    ]


def tolerated(runs: Runs, name: str) -> Array:
    """For each seed the window at which the error first comes to `FAILS`, shape (seeds,).

    Between two windows the error is taken to be linear in the logarithm of the window; the longest one if it
    does not come to that.
    """
    errors = np.array([runs[f"{name}, window {window}", "error"] for window in WINDOWS[name]])
    return np.array([np.exp(crossing(np.log(WINDOWS[name]), FAILS - error)) for error in errors.T])


def _agn(runs: Runs) -> list[Check]:
    downpour, agn = tolerated(runs, "downpour-blocking"), tolerated(runs, "agn")
    return [
        Check("window at which DOWNPOUR has 10% errors", Interval.of(downpour)),
        Check("window at which AGN has 10% errors", Interval.of(agn)),
        Check("AGN's ÷ DOWNPOUR's", Interval.of_ratio(agn, downpour), 2.0, 4.5),
    ]


def _sequential(runs: Runs) -> list[Check]:
    more = runs["AGN", "error"] - runs["sequential Adam", "error"]
    return [Check("error of AGN − of sequential Adam, percentage points", Interval.of(more), below=1.0)]


CLAIMS = [
    Claim(
        name="downpour-window",
        statement="DOWNPOUR degrades and then diverges as its window grows, where AGN does not.",
        source="Hermans 2017 (thesis)",
        published="MNIST, 10 workers: diverges with windows of 5, 10 and 20; AGN has 98.4%",
        variants={f"window {w}": {"strategy.communication_window": w} for w in (1, 3, 10, 20)}
        | {"AGN, window 20": {"strategy.name": "agn", "strategy.communication_window": 20}},
        checks=_downpour,
    ),
    Claim(
        name="agn-window",
        statement="Accumulated gradient normalisation bears a window three times as long as DOWNPOUR's.",
        source="Hermans (dist-keras); Hermans, Spanakis and Möckel 2017",
        published="about 3 times",
        variants={
            f"{name}, window {w}": {"strategy.name": name, "strategy.communication_window": w}
            for name, windows in WINDOWS.items()
            for w in windows
        },
        checks=_agn,
        seeds=8,
    ),
    Claim(
        name="agn-sequential",
        statement="AGN is on a par with sequential Adam.",
        source="Hermans 2017 (thesis)",
        published="MNIST, 10 workers, window 10: 98.4%",
        variants={
            "AGN": {},
            "sequential Adam": {"cluster.workers": 1, "strategy.name": "asynchronous"},
        },
        checks=_sequential,
    ),
]
