"""Claims about training without a server."""

from functools import partial

from lockstep.studies.reproductions.claim import Check, Claim, Interval, Runs
from lockstep.studies.reproductions.metrics import Array, learned

RATES = (0.2, 0.5)
TARGET = 0.15


def _gossip(runs: Runs) -> list[Check]:
    def tuned(name: str, metric: str) -> Array:
        return runs.tuned([f"{name}, rate {rate}" for rate in RATES], "loss", metric)

    more = tuned("gossip", "error") - tuned("all-reduce", "error")
    return [
        Check("error of gossip − of all-reduce, percentage points", Interval.of(more), below=1.0),
        Check(
            "loss of gossip ÷ of all-reduce",
            Interval.of_ratio(tuned("gossip", "loss"), tuned("all-reduce", "loss")),
            below=1.25,
        ),
        Check(
            f"s to a loss of {TARGET}, all-reduce ÷ gossip",
            Interval.of_ratio(tuned("all-reduce", "seconds"), tuned("gossip", "seconds")),
            above=1.0,
        ),
    ]


CLAIMS = [
    Claim(
        name="gossip-loss",
        statement="Gossip with 3 random peers reaches the loss of all-reduce, sooner on a slow network.",
        source="Blot et al. 2016 (GoSGD)",
        published="the same loss, without waiting",
        variants={
            f"{name}, rate {rate}": {"strategy.name": name, "strategy.learning_rate": rate}
            for name in ("all-reduce", "gossip")
            for rate in RATES
        },
        measure=partial(learned, target=TARGET),
        checks=_gossip,
        seeds=8,
    ),
]
