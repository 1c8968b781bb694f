"""What a decision takes besides the answer: what would change it, what it costs, how sure it is."""

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.analysis.gains import LEAST, Gain, in_words
from lockstep.analysis.held_out import MEASURED_WORKERS, THROUGHPUT_ERRORS, TIME_TO_TARGET_ERROR
from lockstep.analysis.report.answer import Answer, overlap
from lockstep.analysis.report.points import Point
from lockstep.analysis.what_if import IDEAL, MATTERS, WhatIf
from lockstep.analysis.words import count, number, percent

_MOST = 3  # what-ifs
_PRICE = "--set 'cluster.price=3 USD/h'"
_HOURS = 360.0  # host-seconds: more are host-hours
_SAME = 1e-6  # of the mean: what is left of rounding
_CHEAPER = 0.99  # of the cost: what is as dear is not named

Brief = list[tuple[str, list[str]]]


def brief(
    answered: Answer,
    engine: str,
    gains: Sequence[Gain] | None = None,
    recommendation: Mapping[str, Any] | None = None,
    way: WhatIf | None = None,
) -> Brief:
    """Heads, and a few lines below each, on the best point of some runs; nothing if none has ended."""
    best = answered.ranking[0]
    if best.runs.empty:
        return []
    what_ifs = _tried(engine, gains, way) if recommendation is None else _asked(recommendation)
    return [
        ("What would change it", what_ifs),
        ("What it costs", _costs(answered)),
        ("How sure it is", _sure(answered, engine)),
    ]


def _counted(answered: Answer) -> list[Point]:
    """The points with which the best is compared, itself first: none that stayed disturbed, if it did not."""
    best, *others = answered.ranking
    return [best, *(each for each in others if best.disturbed or not each.disturbed)]


def of_validation(comparisons: Sequence[Mapping[str, Any]]) -> Brief:
    """The same of predicted and measured runs: how sure their errors are."""
    runs = count(len(comparisons), "pair")
    lines = [
        f"{runs} of a predicted and a measured run, on the cluster of this page.",
        "Each measurement is of one run: what chance does to it is in the errors.",
    ]
    return [("How sure it is", lines)]


def _tried(engine: str, gains: Sequence[Gain] | None, way: WhatIf | None) -> list[str]:
    """The change that saves most on the way to the ideal, parts that save most a tenth faster, the ideal."""
    if engine != "simulator":
        return [
            "Not tried: a measured run cannot be changed. Predict it to see: lockstep simulate, then report."
        ]
    if gains is None:
        return ["Not tried."]
    most, ideal = _on_the_way(way) if way is not None else ([], [])
    room = _MOST - len(most) - len(ideal)
    found = [gain for gain in gains if abs(gain.gain) >= LEAST][:room]
    lines = [*most, *(f"{each.who}, a tenth faster: {in_words(each)}" for each in found), *ideal]
    return lines or ["Nothing of the cluster that was made a tenth faster saved any time."]


def _on_the_way(way: WhatIf) -> tuple[list[str], list[str]]:
    """The change that saves most, and the ideal; those that matter."""
    found = way.most()
    most = [f"{found[0]}: {percent(found[1])} less time"] if found is not None else []
    now, last = way.steps[0].seconds, way.steps[-1]
    whole = 1 - last.seconds / now if last.change == IDEAL and last.seconds and now else 0.0
    ideal = [f"the ideal, in which only computing takes time: {percent(whole)} less"] * (whole >= MATTERS)
    return most, ideal


def _asked(recommendation: Mapping[str, Any]) -> list[str]:
    """The what-ifs that change the answer, then those that change most what it is worth."""
    name, unit = recommendation["recommended"], recommendation["unit"]
    now = next(each["mean"] for each in recommendation["ranking"] if each["label"] == name)

    def moves(each: Mapping[str, Any]) -> tuple[bool, float]:
        then = each["values"].get(name)
        return each["best"] == name, -abs(then / now - 1) if then and now else 0.0

    lines = []
    for each in sorted(recommendation["what_if"], key=moves)[:_MOST]:
        then = each["values"].get(each["best"])
        who = "the same answer" if each["best"] == name else each["best"]
        lines.append(f"{each['change']}: {who}, {number(then, unit)} instead of {number(now)}")
    return lines or ["No other cluster was tried."]


def _costs(answered: Answer) -> list[str]:
    best = answered.ranking[0]
    hosts, took = best.metrics["hosts"].mean, best.metrics["duration_s"]
    metric = "cost_to_target" if answered.goal.metric == "time_to_target_s" else "cost_of_million"
    what = "to the target" if metric == "cost_to_target" else "a million samples"
    until = "time_to_target_s" if metric == "cost_to_target" else "duration_s"
    lines = []
    if best.metrics[metric].mean is not None:
        dear, whole = (best.metrics[each].text("USD") for each in (metric, "cost"))
        lines.append(f"{dear} {what}; {whole} as long as it ran.")
        cheapest = min(_counted(answered), key=lambda each: _known(each, metric))
        if _known(cheapest, metric) < _CHEAPER * _known(best, metric):
            lines.append(f"Cheapest: {cheapest.name}, {cheapest.metrics[metric].text('USD')}.")
    else:
        lines.append(f"In USD not known: hosts have no price. Give one to the command that ran it: {_PRICE}.")
    if hosts is not None and took.mean is not None:
        taken = (best.metrics[until].mean or took.mean) * hosts
        used = f"{number(taken)} host-seconds" if taken < _HOURS else f"{number(taken / 3600)} host-hours"
        lines.append(f"{count(round(hosts), 'host')}, servers' too; {used} {_ran(until)}.")
    return lines


def _ran(until: str) -> str:
    return "to the target" if until == "time_to_target_s" else "for the best one's run"


def _known(point: Point, metric: str) -> float:
    found = point.metrics[metric].mean
    return float("inf") if found is None else found


def _sure(answered: Answer, engine: str) -> list[str]:
    best, aim = answered.ranking[0], answered.goal
    lines = [_chance(best, answered)]
    if engine != "simulator":
        return [
            *lines,
            "Measured with real processes, on the machine that ran them; others are faster or slower.",
        ]
    median, most, worst = (percent(error) for error in THROUGHPUT_ERRORS)
    off = f"throughput was {median} off in the middle, {most} or less in nine of ten, {worst} at most"
    if aim.metric == "time_to_target_s":
        off = f"time to target was {percent(TIME_TO_TARGET_ERROR)} off for the worst strategy; {off}"
    lines.append(
        f"Predicted, not measured. Where predictions were held against real runs, {off} (docs/accuracy.md)."
    )
    row = best.runs.iloc[0]
    if not row.get("cluster.profile"):
        lines.append(
            "Those had a measured profile; here the file's numbers are as given (lockstep calibrate)."
        )
    if row["cluster.workers"] > MEASURED_WORKERS:
        lines.append(f"It has not been measured with more than {MEASURED_WORKERS} workers.")
    return lines


def _chance(best: Point, answered: Answer) -> str:
    """What seeds say."""
    estimate = best.metrics[answered.goal.metric]
    if estimate.mean is None or estimate.runs < 2:
        return "One run: how much of it is chance is not known; sweep it with --seeds 5 to see."
    seeds = count(estimate.runs, "seed")
    if estimate.half <= _SAME * abs(estimate.mean):
        return f"{seeds} gave the same: nothing in it is left to chance."
    half = percent(estimate.half / abs(estimate.mean))
    close = [each for each in _counted(answered)[1:] if overlap(estimate, each.metrics[answered.goal.metric])]
    than = f" {count(len(close), 'other point')} may be as good." if close else ""
    return f"{seeds}: the 95% interval of the mean is ± {half}.{than}"
