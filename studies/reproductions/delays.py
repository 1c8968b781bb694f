"""Claims about learning from stale gradients."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from lockstep.studies.reproductions.claim import Check, Claim, Interval, Runs
from lockstep.studies.reproductions.metrics import Array

SPLITS = (1, 15, 30)


def _staleness_aware(runs: Runs) -> list[Check]:
    def error(label: str, n: int) -> Interval:
        return runs.mean(f"{label}, n = {n}", "error")

    fixed = [
        Check(f"error at a fixed rate, n = {n}, %", error("fixed rate", n), above=50.0) for n in (15, 30)
    ]
    scaled = [Check(f"error at α₀/τ, n = {n}, %", error("α₀/τ", n), below=10.0) for n in SPLITS]
    return [Check("error at a fixed rate, n = 1, %", error("fixed rate", 1), below=10.0), *fixed, *scaled]


LARGE = 0.2  # a rate that suits one worker
REMEDIES: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {  # each with rates around its best
    "none": ({"strategy.name": "asynchronous"}, (0.007, 0.02, 0.06, LARGE)),
    "bound 0": ({"strategy.name": "ssp-blocking", "strategy.bound": 0}, (0.007, 0.02, 0.06, LARGE)),
    "bound 3": ({"strategy.name": "ssp-blocking", "strategy.bound": 3}, (0.007, 0.02, 0.06, LARGE)),
    "scaled": ({"strategy.name": "staleness-aware"}, (LARGE, 0.4, 0.8)),
    "soft": ({"strategy.name": "soft-sync", "strategy.n": 1}, (LARGE, 0.6, 1.2)),
}


def _remedies(runs: Runs) -> list[Check]:
    def tuned(*names: str) -> Array:
        return runs.tuned([f"{name}, rate {rate:g}" for name in names for rate in REMEDIES[name][1]], "loss")

    bounded = tuned("bound 0", "bound 3")
    found = [Check("loss without a remedy ÷ with the best bound", Interval.of_ratio(tuned("none"), bounded))]
    for name, remedy in (("scaled", "scaled by staleness"), ("soft", "soft synchronisation")):
        large = Interval.of_ratio(
            runs[f"bound 0, rate {LARGE}", "loss"], runs[f"{name}, rate {LARGE}", "loss"]
        )
        found.append(Check(f"loss at a rate of {LARGE}, bound 0 ÷ {remedy}", large, above=1.0))
        best = Interval.of_ratio(bounded, tuned(name))
        found.append(Check(f"loss at the best rate, the best bound ÷ {remedy}", best, above=1.0))
    return found


STRENGTHS = {"adaptive": (0.5, 2.0, 8.0), "constant": (0.04, 2.0, 10.0)}  # λ₀ and λ, the paper's among them


def _compensated(kind: str) -> Mapping[str, Mapping[str, Any]]:
    plain: dict[str, Any] = {"strategy.name": "asynchronous"}
    return {"one worker": {"cluster.workers": 1, **plain}, "ASGD": plain} | {
        f"λ = {strength:g}": {
            "strategy.compensation": strength,
            "strategy.adaptive_compensation": kind == "adaptive",
        }
        for strength in STRENGTHS[kind]
    }


def _recovered(kind: str, runs: Runs) -> list[Check]:
    plain, best = runs["ASGD", "loss"], runs.tuned([f"λ = {s:g}" for s in STRENGTHS[kind]], "loss")
    return [
        Check(
            "loss of ASGD ÷ of one worker", Interval.of_ratio(plain, runs["one worker", "loss"]), above=1.0
        ),
        Check(f"loss of ASGD ÷ with the best {kind} λ", Interval.of_ratio(plain, best), above=1.0),
    ]


CLAIMS = [
    Claim(
        name="staleness-aware-rate",
        statement="At high staleness a fixed rate fails to learn, where α₀/τ converges.",
        source="Zhang, Gupta, Lian and Liu 2016",
        published="CIFAR-10, 30 workers, batch 4: 90% errors at n = 15 and 30; with α₀/τ 18% at every n",
        variants={
            f"{label}, n = {n}": {"strategy.n": n, "strategy.correction": rule}
            for label, rule in (("fixed rate", "soft-sync"), ("α₀/τ", "staleness-aware"))
            for n in SPLITS
        },
        checks=_staleness_aware,
    ),
    Claim(
        name="staleness-remedies",
        statement="To scale by staleness, and to synchronise softly, do more than to bound it.",
        source="Zhang, Gupta, Lian and Liu 2016; Gupta, Zhang and Wang 2016",
        published="in words: a bound holds workers up and lets what is stale count in full",
        variants={
            f"{name}, rate {rate:g}": changes | {"strategy.learning_rate": rate}
            for name, (changes, rates) in REMEDIES.items()
            for rate in rates
        },
        checks=_remedies,
    ),
    *(
        Claim(
            name=f"delay-compensation-{kind}",
            statement=f"Delay compensation with {what} λ recovers part of what asynchronous SGD loses.",
            source="Zheng et al. 2017",
            published=f"CIFAR-10, 4 workers: {errors} errors; ASGD 9.27%, one worker 8.65%",
            variants=_compensated(kind),
            checks=partial(_recovered, kind),
            seeds=8,
        )
        for kind, what, errors in (("adaptive", "an adaptive", "8.19%"), ("constant", "a constant", "fewer"))
    ),
]
