"""The answer in one sentence, and what makes it less certain than it sounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lockstep.analysis import words
from lockstep.analysis.bottleneck_words import bound_by
from lockstep.analysis.gains import Gain, most
from lockstep.analysis.report.points import Estimate, Point
from lockstep.analysis.what_if import WhatIf
from lockstep.analysis.words import count, number, percent

_BASELINE = "synchronous"
_OF_ACCURACY = "% accuracy"


@dataclass(frozen=True)
class Goal:
    """What makes a point better than another one."""

    metric: str
    unit: str
    sign: int
    """−1 if less is better, 1 if more is."""


@dataclass(frozen=True)
class Answer:
    """The sentence, notes on it, and the points from the best to the worst."""

    sentence: str
    notes: list[str]
    ranking: list[Point]
    goal: Goal
    wanted: str | None
    """What all of them were to reach: "80% accuracy", "loss 0.3"."""


def target(runs: pd.DataFrame) -> str | None:
    """What all runs were to reach; None if there is nothing, or not the same for all."""
    keys = ["target_accuracy", "target.metric", "target.at_least", "target.at_most"]
    found = runs.reindex(columns=[f"stop.{key}" for key in keys]).drop_duplicates()
    if len(found) != 1:
        return None
    accuracy, metric, *bounds = [None if pd.isna(value) else value for value in found.iloc[0]]
    if accuracy is not None:
        return _accuracy(accuracy)
    return metric and words.aim(metric, next(value for value in bounds if value is not None))


def goal(points: Sequence[Point], wanted: str | None) -> Goal:
    """Time to the target if any point has reached it; else accuracy, if that is one, or throughput."""
    if wanted is not None and any(point.metrics["time_to_target_s"].runs for point in points):
        return Goal("time_to_target_s", "s", -1)
    if wanted is not None and wanted.endswith(_OF_ACCURACY):
        return Goal("accuracy", "", 1)
    return Goal("throughput", "samples/s", 1)


def ranked(points: Sequence[Point], goal: Goal) -> list[Point]:
    """From the best to the worst; points of which only some runs have the metric come after the others.

    Points whose runs all stayed disturbed come after these, and those of which none has ended last.
    """

    def place(point: Point) -> tuple[bool, bool, bool, bool, float]:
        estimate = point.metrics[goal.metric]
        partly = bool(point.failed or point.missed(goal.metric))
        none = estimate.mean is None
        return not len(point.runs), point.disturbed, none, partly, -goal.sign * (estimate.mean or 0.0)

    return sorted(points, key=place)


def answer(
    points: Sequence[Point],
    runs: pd.DataFrame,
    gains: Sequence[Gain] | None = None,
    way: WhatIf | None = None,
) -> Answer:
    """The answer of some runs: one, several, or a sweep.

    `gains`, `way`: what would make the best faster, if that was tried; else what limits it is estimated.
    """
    wanted, quiet = target(runs), [point for point in points if not point.disturbed]
    counted = quiet if any(len(point.runs) for point in quiet) else points
    aim = goal(counted, wanted)
    ranking, among = ranked(points, aim), ranked(counted, aim)
    best = among[0]
    if best.metrics[aim.metric].mean is None:
        return Answer("No run has come to its end.", _failures(points), ranking, aim, wanted)
    sentence = (_one if len(among) == 1 else _best_of)(best, among, aim, wanted)
    if best.disturbed:
        sentence = f"Runs stayed disturbed, all of them: {sentence}"
    change = way.most() if way is not None else None
    if change is not None and change[1] > max((each.gain for each in gains or ()), default=0.0):
        sentence += f"; {change[0]} would save {change[1]:.1%} of the time"
    elif gains:
        sentence += f"; {most(gains)}"
    elif best.bottleneck:
        sentence += f"; it is bound by {bound_by(best.bottleneck)}"
    if aim.metric == "throughput":
        sentence += _learned(among)
    return Answer(f"{sentence}.", [*_notes(among, aim, wanted), *_failures(points)], ranking, aim, wanted)


def recommended(document: Mapping[str, Any], ranking: list[Point]) -> Answer:
    """The answer of a recommendation, in its own words; `ranking`: its points, the recommended one first."""
    search, accuracy = document["search"], document["accuracy"]
    wanted = document.get("until") if accuracy is None else _accuracy(accuracy)
    notes = [
        f"{count(search['simulated'], 'candidate')} of {len(search['strategies'])} strategies searched; on "
        "this page are the best of them, simulated again with seeds that the search has not seen."
    ]
    first = next(each for each in document["ranking"] if each["label"] == document["recommended"])
    faster = "time_to_target_s" if wanted is not None else "throughput"
    aim = Goal(faster, "s" if wanted is not None else "samples/s", -1 if wanted is not None else 1)
    if first["warnings"]:
        notes += first["warnings"]
    return Answer(document["answer"], notes, ranking, aim, wanted)


def _one(point: Point, _: list[Point], aim: Goal, wanted: str | None) -> str:
    estimate = point.metrics[aim.metric].text(aim.unit)
    throughput = point.metrics["throughput"].text("samples/s")
    if aim.metric == "time_to_target_s":
        return f"{point.name} reaches {wanted} after {estimate}, at {throughput}"
    speedup, efficiency = (point.metrics[name].mean for name in ("speedup", "efficiency"))
    told = f"{point.name} processes {throughput}"
    if speedup is not None:
        told += f", {number(speedup)} times one worker without a network (efficiency {percent(efficiency)})"
    if aim.metric == "accuracy":
        reached, took = point.metrics["accuracy"].mean, point.metrics["duration_s"].text("s")
        told += f"; it does not reach {wanted}: {percent(reached)} after {took}"
    return told


def _best_of(best: Point, ranking: list[Point], aim: Goal, wanted: str | None) -> str:
    estimate, rivals, strategies = best.metrics[aim.metric], _rivals(ranking, aim), _several(ranking)
    if aim.metric == "accuracy":
        return (
            f"No point reaches {wanted}; {best.name} comes nearest, with {_shown(estimate, aim)} "
            f"after {best.metrics['duration_s'].text('s')}"
        )
    subject = best.strategy if strategies else best.setting
    where = f" with {best.setting}" if strategies else ""
    shown = _shown(estimate, aim)
    if aim.metric == "time_to_target_s":
        told = f"{subject} reaches {wanted} soonest: {shown}{where}"
        if not strategies:
            told = f"{wanted} is reached soonest with {subject}: {shown}"
    else:
        told = f"{subject} has the highest throughput: {shown}{where}"
        if not strategies:
            told = f"Throughput is highest with {subject}: {shown}"
    return told + (f", {_compared(estimate, rivals[0], aim, strategies)}" if rivals else "")


def _learned(ranking: list[Point]) -> str:
    """What the fastest learned in its runs, if others learned more; nothing otherwise."""
    known = [point for point in ranking if point.metrics["accuracy"].mean is not None]
    if not known or known[0] is not ranking[0]:
        return ""
    best, first = max(known, key=lambda point: point.metrics["accuracy"].mean or 0.0), known[0]
    most, own = best.metrics["accuracy"], first.metrics["accuracy"]
    if most.mean == own.mean:
        return ""
    learned, more = (each.text("%", 100).replace(" %", "%") for each in (own, most))
    who = best.strategy if best.strategy != first.strategy else best.setting
    sure = f" ({count(own.runs, 'seed')} are too few to tell these apart)" if overlap(own, most) else ""
    ended = f"its runs end with {learned} accuracy, those of {who} with {more}{sure}"
    return f". But that is speed alone: {ended}; give a target in stop to decide by time"


def _several(ranking: list[Point]) -> bool:
    return len({point.strategy for point in ranking}) > 1


def _rivals(ranking: list[Point], aim: Goal) -> list[Point]:
    """The best point of every other strategy, or of one strategy the other points, with the metric."""
    known = [point for point in ranking[1:] if point.metrics[aim.metric].mean is not None]
    if not _several(ranking):
        return known
    first: dict[str, Point] = {}
    for point in known:
        first.setdefault(point.strategy, point)
    return [point for strategy, point in first.items() if strategy != ranking[0].strategy]


def _compared(best: Estimate, rival: Point, aim: Goal, strategies: bool) -> str:
    """How much better, and than what."""
    other = rival.metrics[aim.metric]
    who = rival.strategy if strategies else rival.setting
    how = f"{_shown(other, aim)}{f' with {rival.setting}' if strategies else ''}"
    if overlap(best, other):
        return f"no clear difference from {who} ({how})"
    assert best.mean is not None
    assert other.mean is not None
    times = (other.mean / best.mean) ** -aim.sign
    if aim.sign < 0:
        return f"{_times(times)} sooner than {who} ({how})"
    return f"{_times(times)} that of {who} ({how})"


def overlap(a: Estimate, b: Estimate) -> bool:
    """Whether two intervals overlap, so that seeds may have made the difference."""
    if a.mean is None or b.mean is None or min(a.runs, b.runs) < 2:
        return False
    return abs(a.mean - b.mean) <= a.half + b.half


def _notes(ranking: list[Point], aim: Goal, wanted: str | None) -> list[str]:
    best, notes = ranking[0], []
    estimate = best.metrics[aim.metric]
    for rival in _rivals(ranking, aim)[1:]:
        if rival.strategy == _BASELINE != best.strategy and _several(ranking) and aim.metric != "accuracy":
            notes.append(f"{best.strategy}: {_compared(estimate, rival, aim, True)}.")
    if aim.metric == "throughput" and _several(ranking):
        notes.append(
            "Throughput counts samples, not what they teach: with stale gradients, or rarer exchanges, "
            "more of them may be needed. With a target in stop the answer is the time to it."
        )
    missed = [point for point in ranking if point.missed("time_to_target_s")] if wanted is not None else []
    if missed and aim.metric != "accuracy":
        some = "; ".join(
            f"{point.name} ({point.missed('time_to_target_s')} of {len(point.runs)})" for point in missed[:4]
        )
        more = f"; and {len(missed) - 4} more" if len(missed) > 4 else ""
        notes.append(f"Runs that did not reach {wanted}: {some}{more}.")
    if max(len(point.runs) for point in ranking) == 1:
        if len(ranking) > 1:
            notes.append(
                "One run a point: how much chance has to do with it is not known; sweep seeds to see."
            )
    else:
        notes.append("± is half of the 95% interval of the mean over seeds (Student's t).")
    return notes


def _failures(points: Sequence[Point]) -> list[str]:
    failed, noisy = (sum(getattr(point, what) for point in points) for what in ("failed", "noisy"))
    ended = sum(len(point.runs) for point in points)
    alone = sum(len(point.runs) for point in points if point.disturbed)
    runs = count(failed + noisy + ended, "run")
    notes = [f"{failed} of {runs} failed; see the warnings."] * bool(failed)
    if noisy or alone:
        counts = ", and count in no mean of a point that has others" * bool(noisy)
        where = " All runs of some points did: theirs are shown, and compared with none." * bool(alone)
        notes.append(f"{noisy + alone} of {runs} stayed disturbed{counts}.{where}")
    return notes


def undisturbed(comparisons: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those whose measurement was not disturbed each time."""
    return [each for each in comparisons if not each["measured"].get("disturbed")]


def validation(comparisons: Sequence[dict[str, Any]]) -> tuple[str, list[str]]:
    """The answer of a validation: how far off predictions were; and notes."""
    all_there = [c for c in comparisons if c["error"].get("throughput") is not None]
    if not all_there:
        return "No run has both been predicted and measured.", []
    comparisons = undisturbed(all_there)
    if not comparisons:
        return "Each measurement stayed disturbed: they say nothing of the predictions.", []
    errors = {c["measured"]["strategy"]: c["error"]["throughput"] for c in comparisons}
    worst = max(errors, key=lambda name: abs(errors[name]))
    whose = worst if len(errors) == 1 else f"all {len(errors)} strategies"
    sentence = f"Throughput was predicted to within {abs(errors[worst]):.1%} for {whose}"
    if len(errors) > 1:
        sentence += f" (worst: {worst}, {percent(errors[worst], sign=True)})"
    notes = []
    order = [
        [c["measured"]["strategy"] for c in sorted(comparisons, key=lambda c: -(c[side]["throughput"] or 0))]
        for side in ("predicted", "measured")
    ]
    if len(errors) > 1:
        same = order[0] == order[1]
        sentence += ", and their order is " + ("the measured one" if same else "not the measured one")
        if not same:
            notes.append(f"Fastest first, predicted: {', '.join(order[0])}; measured: {', '.join(order[1])}.")
    if left_out := [c["measured"]["strategy"] for c in all_there if c not in comparisons]:
        notes.append(f"Not counted, as disturbed each time: {', '.join(left_out)}.")
    notes.append("Errors are (predicted − measured) ÷ measured: positive is predicted too high.")
    return f"{sentence}.", notes


def _shown(estimate: Estimate, aim: Goal) -> str:
    return estimate.text("%", 100).replace(" %", "%") if aim.metric == "accuracy" else estimate.text(aim.unit)


def _accuracy(wanted: float) -> str:
    return f"{100 * wanted:.4g}{_OF_ACCURACY}"


def _times(ratio: float) -> str:
    return f"{ratio:.3g}×" if ratio < 1.095 else f"{ratio:.2g}×" if ratio < 10 else f"{ratio:,.0f}×"
