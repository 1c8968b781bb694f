"""Claims about gradients that are sent in fewer bits."""

from typing import Any

from lockstep.literature.claim import Check, Claim, Interval, Runs

HOW: dict[str, dict[str, Any]] = {
    "32 bits": {"strategy.codec": "none"},
    "1 bit, feedback": {"strategy.codec": "1-bit"},
    "1 bit": {"strategy.codec": "1-bit", "strategy.error_feedback": False},
}
RATES = {"synchronous": (0.1, 0.5), "asynchronous": (0.05, 0.1)}


def _one_bit(runs: Runs) -> list[Check]:
    checks = []
    for name, rates in RATES.items():
        error = {
            how: runs.tuned([f"{name}, {how}, rate {rate}" for rate in rates], "loss", "error") for how in HOW
        }
        loss = {how: runs.tuned([f"{name}, {how}, rate {rate}" for rate in rates], "loss") for how in HOW}
        more = Interval.of(error["1 bit, feedback"] - error["32 bits"])
        costs = Interval.of_ratio(loss["1 bit"], loss["1 bit, feedback"])
        checks += [
            Check(f"error with feedback − of 32 bits, {name}, percentage points", more, below=1.0),
            Check(f"loss without ÷ with feedback, {name}", costs, above=1.0),
            Check(f"error without feedback, {name}, %", Interval.of(error["1 bit"]), above=50.0),
        ]
    return checks


CLAIMS = [
    Claim(
        name="one-bit-feedback",
        statement="Gradients of 1 bit do as well as those of 32 with error feedback, and fail without.",
        source="Seide et al. 2014",
        published="no loss of accuracy; without feedback training diverges",
        variants={
            f"{name}, {how}, rate {rate}": {
                "strategy.name": name,
                "strategy.learning_rate": rate,
            }
            | changes
            for name, rates in RATES.items()
            for how, changes in HOW.items()
            for rate in rates
        },
        checks=_one_bit,
    ),
]
