"""Claims about gradients that are sent in fewer bits."""

from typing import Any

from lockstep.studies.reproductions.claim import Check, Claim, Interval, Runs
from lockstep.studies.reproductions.metrics import Array

HOW: dict[str, dict[str, Any]] = {
    "32 bits": {"strategy.codec": "none"},
    "1 bit, feedback": {"strategy.codec": "1-bit"},
    "1 bit": {"strategy.codec": "1-bit", "strategy.error_feedback": False},
}
RATES = (0.1, 0.3)


def _one_bit(runs: Runs) -> list[Check]:
    def tuned(how: str, metric: str) -> Array:
        return runs.tuned([f"{how}, rate {rate}" for rate in RATES], "loss", metric)

    error = {how: tuned(how, "error") for how in HOW}
    costs = Interval.of_ratio(tuned("1 bit", "loss"), tuned("1 bit, feedback", "loss"))
    return [
        Check(
            "error with feedback − of 32 bits, percentage points",
            Interval.of(error["1 bit, feedback"] - error["32 bits"]),
            below=1.0,
        ),
        Check(
            "error without − of 32 bits, percentage points",
            Interval.of(error["1 bit"] - error["32 bits"]),
            above=10.0,
        ),
        Check("loss without ÷ with feedback", costs, above=1.0),
    ]


CLAIMS = [
    Claim(
        name=name,
        statement=f"1-bit gradients do as well as 32-bit ones with error feedback, and fail without ({net}).",
        source="Seide et al. 2014",
        published="no loss of accuracy with feedback; 1 bit needs it",
        variants={
            f"{how}, rate {rate}": {"strategy.learning_rate": rate} | changes
            for how, changes in HOW.items()
            for rate in RATES
        },
        checks=_one_bit,
    )
    for name, net in (("one-bit-deep", "a deep net"), ("one-bit-shallow", "a shallow one"))
]
