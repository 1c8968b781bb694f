"""Claims about what workers sum up before they push it."""

from lockstep.literature.claim import Check, Claim, Interval, Runs

WINDOWS = (1, 2, 3, 5, 10, 20)


def _downpour(runs: Runs) -> list[Check]:
    def ratio(window: int, to: int) -> Interval:
        return Interval.of(runs[f"window {window}", "loss"] / runs[f"window {to}", "loss"])

    return [
        Check("loss at window 5 ÷ at window 1", ratio(5, 1), above=1.0),
        Check("loss at window 10 ÷ at window 5", ratio(10, 5), above=1.0),
        Check("error at window 20, %", runs.mean("window 20", "error"), above=50.0),
    ]


CLAIMS = [
    Claim(
        name="downpour-window",
        statement="DOWNPOUR degrades and then diverges as its communication window grows.",
        source="Hermans 2017 (thesis)",
        published="MNIST, 10 workers: diverges with windows of 5, 10 and 20",
        variants={f"window {w}": {"strategy.communication_window": w} for w in WINDOWS},
        checks=_downpour,
    ),
]
