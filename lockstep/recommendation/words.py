"""A recommendation in words: a sentence, what would change it, and what it leaves open."""

from collections.abc import Iterator, Sequence

from lockstep.analysis.held_out import THROUGHPUT_ERRORS
from lockstep.analysis.words import aim, count, number, percent, within
from lockstep.recommendation import SEEDS, Recommendation
from lockstep.recommendation.ranking import Goal, Ranked, best, clearly_better, firsts, peers
from lockstep.recommendation.what_if import Answer
from lockstep.scenarios import Scenario

_, MODEL_ERROR, _ = THROUGHPUT_ERRORS  # of nine of ten predictions
_SCATTER = 0.2  # half an interval over the mean; more is said


def worth(ranked: Ranked) -> str:
    """The mean and half its 95% interval; how many of the runs reached the target, if not all."""
    if ranked.mean is None and any(map(ranked.goal.too_dear, ranked.rows)):
        return f"more than {number(ranked.goal.at_most, 'USD')}"
    if ranked.mean is None:
        return f"not in {number(_given(ranked), 's')}" if ranked.goal.learns else "nothing applied"
    some = f" ({ranked.reached} of {len(ranked.rows)} runs)" if ranked.reached < len(ranked.rows) else ""
    return within(ranked.mean, ranked.half) + some


def wanted(found: Recommendation) -> str:
    """What a run waits for: "90.0%", "loss 0.3"; nothing where it does not."""
    if (goal := found.scenario.stop.goal) is None:
        return ""
    return percent(goal.value) if goal.metric == "accuracy" else aim(goal.metric, goal.value)


def _given(ranked: Ranked) -> float:
    """The time that a candidate had to come to the target, in s."""
    return ranked.average("stop.time") or 0.0


def answer(found: Recommendation) -> list[str]:
    """The recommendation and what has to be known about it, a sentence each."""
    ranking, goal = found.ranking, found.goal
    first = best(ranking)
    if first.mean is None and goal.at_most is not None:
        return [_too_dear(found)]
    if first.mean is None:
        return [
            f"No strategy reached {wanted(found)} before a bound in stop "
            "ended the run: raise the bound, or the budget."
            if goal.learns
            else "No strategy applied anything: the runs are too short."
        ]
    said = [f"{_subject(found, first)}: {worth(first)} {goal.unit}."]
    said += _rivals(first, peers(ranking, first))
    said += _price(found) if not goal.learns else []
    said += [str(found.checkpoints)] if found.checkpoints is not None else []
    own = next((each for each in ranking if each.candidate == found.own), None)
    if own is not None and own is not first and own.mean is not None:
        said.append(_than_own(first, own))
    if first.mean and first.half > _SCATTER * abs(first.mean):
        said.append("It differs much from seed to seed: try several seeds before you rely on it.")
    if len(first.rows) == 1:
        why = "Interrupted" if found.interrupted else "Ended early by an error"
        said.append(f"{why}: one run each, with the search's seed, whose winner may owe it to luck.")
    elif found.interrupted:
        said.append("Interrupted: strategies that were still to be ranked, and what-ifs, are missing.")
    return said


def _too_dear(found: Recommendation) -> str:
    goal = found.goal
    costs = [cost for row in found.search_.rows.values() if (cost := goal.cost(row)) is not None]
    what = "to the target" if goal.learns else "for a million samples"
    least = f"; the least that a run took is {number(min(costs), 'USD')}" if costs else ""
    return f"Nothing that was found takes {number(goal.at_most, 'USD')} or less {what}{least}."


def _subject(found: Recommendation, first: Ranked) -> str:
    target = {
        "time": f"Soonest at {wanted(found)}",
        "throughput": "For throughput",
        "machine-hours": "Least machine time",
        "cost": "Cheapest",
    }[found.target]
    if found.goal.at_most is not None:
        target += f" for {number(found.goal.at_most, 'USD')} at most"
    return f"{target}: {first.candidate.label}"


def _than_own(first: Ranked, own: Ranked) -> str:
    assert first.mean is not None
    assert own.mean is not None
    times = f"{first.goal.ratio(first.mean, own.mean):.3g} times"
    name = f"the file's {own.candidate.label}"
    if not (clearly_better(first, own) or clearly_better(own, first)):
        return f"{name[0].upper()}{name[1:]} does as well."
    if first.goal.high:
        return f"That is {times} the throughput of {name}."
    return f"With {name} it is {times} as {'long' if first.goal.target == 'time' else 'much'}."


def _rivals(first: Ranked, ranking: list[Ranked]) -> list[str]:
    """Which of its peers cannot be told from the first, and whether its lead is within the model's error."""
    others = [each for each in ranking if each is not first]
    alike = [each for each in others if not clearly_better(first, each)]
    said = []
    if alike:
        names = ", ".join(each.candidate.label for each in alike)
        said.append(f"As good, as far as {len(first.rows)} seeds can tell: {names}.")
    behind = [each for each in others if each not in alike and each.mean is not None]
    if behind and first.mean and behind[0].mean:
        lead = first.goal.ratio(first.mean, behind[0].mean) - 1
        if 0 < lead < MODEL_ERROR and behind[0].reached == len(behind[0].rows):
            said.append(
                f"Its lead of {percent(lead)} on {behind[0].candidate.label} is within what a prediction may "
                f"be off by ({percent(MODEL_ERROR)} in nine of ten cases, docs/accuracy.md)."
            )
    return said


def _price(found: Recommendation) -> list[str]:
    """What speed may cost in learning, which was not simulated."""
    first, *faster = firsts(found.ranking)
    if not first.in_step:
        return [
            "Nothing was learned here, and its updates are staler or rarer than in step: whether that costs "
            "more than it gains is not known."
        ]
    said = ["Its workers are in step: it learns as one worker with all their mini-batches does."]
    if faster:
        said.append(
            f"Not in step, and faster: {faster[0].candidate.label}, {worth(faster[0])} {first.goal.unit}. "
            f"It is the better one {condition(faster[0], first)}; nothing was learned here. "
            f"To know, let it learn: give {to_learn(found.scenario, found.target)}."
        )
    return said


def to_learn(scenario: Scenario, target: str) -> str:
    """What is missing for a recommendation of what learns fastest."""
    missing = {
        "a workload with a dataset or a task": not scenario.workload.learns,
        "a stop.target": scenario.stop.goal is None,
        "--target time": target == "throughput",
    }
    return ", and ".join(name for name, is_missing in missing.items() if is_missing)


def condition(ranked: Ranked, yardstick: Ranked) -> str:
    """When one out of step is better than one in step: "if it needs fewer than 1.3 times the samples"."""
    times = ranked.goal.ratio(ranked.mean or 0.0, yardstick.mean or 0.0)
    return f"if it needs fewer than {times:.2f} times the samples"


def samples(ranked: Ranked, yardstick: Ranked | None) -> float | None:
    """How many times the samples of the best in step one out of step may need, to be as good."""
    if yardstick is None or ranked.in_step or ranked.mean is None or yardstick.mean is None:
        return None
    return ranked.goal.ratio(ranked.mean, yardstick.mean)


def in_step(ranking: Sequence[Ranked]) -> Ranked | None:
    """Where nothing is learned the best one whose workers are in step."""
    return next((each for each in ranking if each.in_step and each.mean and not each.goal.learns), None)


def changes(found: Recommendation) -> list[str]:
    """The what-ifs: a line for each that changes the answer, and one for those that do not."""
    said = [f"{each.change}: {'; '.join(_instead(each, found.goal))}" for each in found.answers if each.other]
    same = [each.change for each in found.answers if not each.other]
    if same:
        said.append(f"no other answer with: {', '.join(same)}")
    return said


def _instead(answer: Answer, goal: Goal) -> Iterator[str]:
    """Which candidate wins instead, and which is faster though not in step."""
    first, usual = answer.of(answer.best[0]), answer.of(answer.usual[0])
    if first is not usual:
        yield f"{first.candidate.label} wins ({worth_of(first)} instead of {worth_of(usual)})"
    faster, before = answer.best[1:], answer.usual[1:]
    if faster == before:
        return
    if not faster:
        yield f"nothing is clearly faster than {first.candidate.label}, in step ({worth_of(first)})"
        return
    other = answer.of(faster[0])
    yield f"{other.candidate.label} is the fastest ({worth_of(other)}), {condition(other, first)}"


def worth_of(ranked: Ranked) -> str:
    """The mean with its unit, and in how many runs there was one, if not in all."""
    some = f" in {ranked.reached} of {len(ranked.rows)} runs" if ranked.reached < len(ranked.rows) else ""
    return worth(ranked) if ranked.mean is None else number(ranked.mean, ranked.goal.unit) + some


def how(found: Recommendation) -> str:
    """How the numbers came about."""
    search = found.search_
    whole = "all" if search.size <= search.simulated else f"of {search.size:,}"
    tried, among = count(search.simulated, "candidate"), count(len(search.spaces), "strategy")
    runs = f"{tried} tried ({whole}), of {among}"
    if found.beyond:
        runs += f"; the budget ended before {', '.join(found.beyond)}"
    if not found.finals:
        return f"{runs}."
    return f"{runs}; values: mean and 95% interval of {SEEDS} seeds that the search has not seen."
