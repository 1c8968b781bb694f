"""Claims about models that are split into stages."""

from functools import partial

import lockstep
from lockstep.scenarios import Scenario
from lockstep.studies.reproductions.claim import Check, Claim, Interval, Runs
from lockstep.studies.reproductions.metrics import Array, learned

MODELS = ("vgg11", "resnet50")
RATES = (0.1, 0.2, 0.4, 0.8)
TARGET = 0.3
_FREE: dict[str, object] = {"cluster.network": {"bandwidth": "100 Gbit/s", "latency": "10 us"}}
MICRO_BATCHES = (4, 8, 16, 32, 64, 256)


def throughput(scenario: Scenario) -> dict[str, float]:
    """`samples per s`, and `idle`, the share of the stages' time in which they do no pass, %."""
    result = lockstep.simulate(scenario)
    idle = 100 * (1 - float(result.breakdown["compute"].mean()))
    return {"samples per s": result.metrics["throughput"], "idle": idle}


def _cut(runs: Runs) -> list[Check]:
    return [
        Check(
            f"samples/s, {model}, cut by time ÷ by parameters",
            Interval.of_ratio(*(runs[f"{model}, {by}", "samples per s"] for by in ("time", "parameters"))),
            above=1.0,
        )
        for model in MODELS
    ]


def _flush(runs: Runs) -> list[Check]:
    def tuned(name: str, metric: str | None = None) -> Array:
        return runs.tuned([f"{name}, rate {rate}" for rate in RATES], "seconds", metric)

    def ratio(metric: str) -> Interval:
        return Interval.of_ratio(tuned("GPipe", metric), tuned("PipeDream", metric))

    return [
        Check(f"s to a loss of {TARGET}, GPipe ÷ PipeDream", ratio("seconds"), above=1.0),
        Check("updates until then", ratio("updates")),
        Check("samples/s", ratio("samples per s")),
        Check("mean staleness of PipeDream", Interval.of(tuned("PipeDream", "staleness"))),
    ]


def _micro_batches(runs: Runs) -> list[Check]:
    def idle(number: int) -> Interval:
        return Interval.of(runs[f"{number}, free", "idle"])

    def most(costs: str) -> Interval:
        among = [f"{number}, {costs}" for number in MICRO_BATCHES]
        best = max(among, key=lambda variant: runs.mean(variant, "samples per s").mean)
        return Interval.of_ratio(runs[best, "samples per s"], runs[among[-1], "samples per s"])

    def less(few: int, many: int) -> Interval:
        return Interval.of(runs[f"{few}, free", "idle"] - runs[f"{many}, free", "idle"])

    return [
        Check("idle with 4 micro-batches − with 8, percentage points", less(4, 8), above=0.0),
        Check("with 8 − with 32", less(8, 32), above=0.0),
        Check("idle with 16 micro-batches, four a stage, %", idle(16)),
        Check("samples/s, best ÷ with 256, messages that take 0.4 ms", most("overheads"), above=1.0),
        Check("the same, passes that take 0.5 ms besides", most("passes"), above=1.0),
        Check("the same, neither", most("free")),
    ]


CLAIMS = [
    Claim(
        name="pipeline-cut",
        statement="A pipeline that is cut evenly by time is faster than one cut evenly by parameters.",
        source="Narayanan et al. 2019 (PipeDream); torchgpipe's balance",
        published="stages are balanced by profiled time",
        variants={
            f"{model}, {by}": {"workload.model": model, "parallelism.cut": {"by": by}}
            for model in MODELS
            for by in ("time", "parameters")
        },
        measure=throughput,
        checks=_cut,
    ),
    Claim(
        name="pipeline-flush",
        statement="On a slow network PipeDream reaches the loss of GPipe sooner.",
        source="Narayanan et al. 2019 (PipeDream)",
        published="as many epochs, in less time",
        variants={
            f"{name}, rate {rate}": {"strategy.learning_rate": rate} | changes
            for name, changes in {
                "GPipe": {},
                "PipeDream": {"strategy.name": "pipedream", "parallelism": {"pipeline": 4}},
            }.items()
            for rate in RATES
        },
        measure=partial(learned, target=TARGET),
        checks=_flush,
    ),
    Claim(
        name="pipeline-micro-batches",
        statement="More micro-batches shrink the bubble, and below some size cost more than they save.",
        source="Huang et al. 2019 (GPipe)",
        published="a bubble that is negligible with four times as many micro-batches as stages",
        variants={
            f"{number}, {costs}": {"parallelism.micro_batches": number} | changes
            for costs, changes in {
                "overheads": {},
                "passes": _FREE | {"cluster.pass_overhead": "500 us"},
                "free": _FREE,
            }.items()
            for number in MICRO_BATCHES
        },
        measure=throughput,
        checks=_micro_batches,
    ),
]
