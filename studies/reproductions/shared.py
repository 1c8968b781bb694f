"""Claims about memory that workers share and do not lock."""

from functools import partial

from lockstep.studies.reproductions.claim import Check, Claim, Interval, Runs
from lockstep.studies.reproductions.metrics import learned

WORKERS = (8, 16)
TARGET = 0.42


def _hogwild(runs: Runs) -> list[Check]:
    checks = []
    for n in WORKERS:
        speedup = Interval.of_ratio(runs["1 worker", "seconds"], runs[f"{n} workers", "seconds"])
        checks.append(Check(f"speed-up to a loss of {TARGET}, {n} workers", speedup, above=0.8 * n))
    return checks


CLAIMS = [
    Claim(
        name="hogwild-speedup",
        statement="Without locks, training on sparse data speeds up nearly linearly with workers.",
        source="Niu et al. 2011 (HOGWILD!)",
        published="nearly linear where gradients are sparse",
        variants={
            f"{n} worker{'s' * (n > 1)}": {"cluster.workers": n, "cluster.workers_per_host": n}
            for n in (1, *WORKERS)
        },
        measure=partial(learned, target=TARGET),
        checks=_hogwild,
        seeds=8,
    ),
]
