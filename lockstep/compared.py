"""What a comparison of strategies, predicted and measured, comes to in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.analysis.words import NOTHING, aim, number
from lockstep.scenarios import Scenario

LARGE = 0.1  # an error of throughput: held-out predictions are all nearer (docs/accuracy.md)
_SIDES = ("predicted", "measured")


def rates(points: Sequence[Scenario]) -> str:
    """The learning rate of each strategy, if they are not the same: "synchronous 0.2, asynchronous 0.05"."""
    given = {each.strategy.name: each.strategy.parameters.get("learning_rate") for each in points}
    if len(set(given.values())) == 1:
        return ""
    return ", ".join(f"{name} {'its default' if rate is None else rate}" for name, rate in given.items())


def far_off(comparisons: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a throughput was predicted worse than it should be, of a run that nothing disturbed."""
    quiet = _undisturbed(comparisons)
    return any(abs(each["error"]["throughput"] or 0.0) > LARGE for each in quiet)


def _undisturbed(comparisons: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [each for each in comparisons if not each["measured"].get("disturbed")]


def answer(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """Which strategy was first, as predicted and as measured, in a sentence; "" for a single strategy.

    By the time to the target accuracy, if there is one and somebody has reached it; by throughput otherwise.
    Runs that stayed disturbed have no part in it.
    """
    quiet = _undisturbed(comparisons)
    if len(quiet) < len(comparisons):
        left_out = ", ".join(each["measured"]["strategy"] for each in comparisons if each not in quiet)
        return f"{answer(quiet)} Not counted, as disturbed each time: {left_out}.".lstrip()
    if len(comparisons) < 2:
        return ""
    times = {side: _values(comparisons, side, "time_to_target_s") for side in _SIDES}
    if not any(times.values()):
        rates = {side: _values(comparisons, side, "throughput") for side in _SIDES}
        return _sentence("processes the most samples", rates, "samples/s", high=True)
    measured = comparisons[0]["measured"]
    reached = aim(measured.get("target_metric"), measured["target"]).replace(".0%", "%")
    return _sentence(f"reaches {reached} soonest", times, "s", high=False)


def _values(comparisons: Sequence[Mapping[str, Any]], side: str, metric: str) -> dict[str, float]:
    found = {each[side]["strategy"]: each[side][metric] for each in comparisons}
    return {name: value for name, value in found.items() if value is not None}


def _sentence(what: str, values: Mapping[str, Mapping[str, float]], unit: str, high: bool) -> str:
    order = {
        side: sorted(its, key=lambda name: -its[name] if high else its[name]) for side, its in values.items()
    }
    first = {side: names[0] if names else NOTHING for side, names in order.items()}

    def times(name: str) -> str:
        return ", ".join(f"{side} {number(values[side].get(name), unit)}" for side in _SIDES)

    winner = first["measured"]
    if winner != first["predicted"]:
        each = " and ".join(
            f"{first[side]} as {side} ({number(values[side].get(first[side]), unit)})" for side in _SIDES
        )
        return f"Answer: not clear. What {what} is {each}."
    second = next((name for name in order["measured"] if name != winner), None)
    then = f", before {second} ({times(second)})" if second else ", and no other does"
    return f"Answer: {winner} {what} ({times(winner)}){then}."
