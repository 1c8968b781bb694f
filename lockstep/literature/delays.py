"""Claims about learning from stale gradients."""

from lockstep.literature.claim import Array, Check, Claim, Interval, Runs

SPLITS = (1, 15, 30)


def _staleness_aware(runs: Runs) -> list[Check]:
    base = runs["fixed rate, n = 1", "error"]
    fixed = [
        Check(f"error at a fixed rate, n = {n}, %", runs.mean(f"fixed rate, n = {n}", "error"), above=50.0)
        for n in SPLITS[1:]
    ]
    scaled = [
        Check(
            f"error at α₀/τ, n = {n}, − at a fixed rate, n = 1, percentage points",
            Interval.of(runs[f"α₀/τ, n = {n}", "error"] - base),
            below=1.0,
        )
        for n in SPLITS
    ]
    return [*fixed, *scaled]


STRENGTHS = {"constant λ": (0.04, 2.0, 10.0), "adaptive λ": (0.5, 2.0, 8.0)}
SERIAL = 0.2  # what a single worker learns well at


def _compensated(kind: str, rate: float) -> list[str]:
    return [f"{kind} = {strength:g}, rate {rate:g}" for strength in STRENGTHS[kind]]


def _delay_compensated(runs: Runs) -> list[Check]:
    serial, plain = runs["one worker", "loss"], runs[f"ASGD, rate {SERIAL:g}", "loss"]
    checks = [Check("loss of ASGD ÷ of one worker, at its rate", Interval.of_ratio(plain, serial), above=1.0)]
    for kind in STRENGTHS:
        loss = runs.tuned(_compensated(kind, SERIAL), "loss")
        checks.append(
            Check(f"loss of ASGD ÷ with {kind}, at that rate", Interval.of_ratio(plain, loss), above=1.0)
        )
    return checks


CLAIMS = [
    Claim(
        name="staleness-aware-rate",
        statement="At high staleness a fixed rate fails to learn, where α₀/τ converges.",
        source="Zhang, Gupta, Lian and Liu 2016",
        published="CIFAR-10, λ = 30, batch 4, n-softsync: 90% errors at n = 15 and 30; with α₀/τ 18% at every n",
        variants={
            f"{label}, n = {n}": {"strategy.n": n, "strategy.rule": rule}
            for label, rule in (("fixed rate", "soft-sync"), ("α₀/τ", "staleness-aware"))
            for n in SPLITS
        },
        checks=_staleness_aware,
    ),
    Claim(
        name="delay-compensation",
        statement="Delay compensation recovers part of what asynchronous SGD loses.",
        source="Zheng et al. 2017",
        published="CIFAR-10, 4 workers: 8.19% errors (adaptive), ASGD 9.27%, one worker 8.65%",
        variants={
            "one worker": {"cluster.workers": 1, "strategy.name": "asynchronous"},
            f"ASGD, rate {SERIAL:g}": {"strategy.name": "asynchronous"},
        }
        | {
            variant: {
                "strategy.compensation": strength,
                "strategy.adaptive_compensation": kind == "adaptive λ",
            }
            for kind, strengths in STRENGTHS.items()
            for variant, strength in zip(_compensated(kind, SERIAL), strengths, strict=True)
        },
        checks=_delay_compensated,
        seeds=8,
    ),
]
