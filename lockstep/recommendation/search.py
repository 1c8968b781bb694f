"""The search: every strategy as it is usually set, then where the promising ones are best.

Each strategy's knobs are searched by a study of its own (Optuna's TPE); the budget is shared out by
successive halving (Jamieson and Talwalkar 2016): `ROUNDS` times, the half of the strategies that looks best
shares an equal part. How trials come in batches does not depend on the number of cores, so that the search
is the same everywhere. A space that the budget covers is tried as a whole.

Until a target accuracy, a strategy is worth little without the learning rate that suits it. So all have
several first, for a short time; the better half, with the rates next to its best, has twice that, and so on,
which is successive halving too. Strategies that did the very same as they are usually set are one there. A
run is stopped when it cannot win any more: at `MARGIN` times the best so far.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lockstep.recommendation.ranking import Goal, in_step, same_run
from lockstep.recommendation.runs import Job, Row, hosts, simulate_all, timed
from lockstep.recommendation.space import CYCLES, RATE, Candidate, Knob, Space, apply
from lockstep.scenarios import Scenario, ScenarioError

ROUNDS = 3
MARGIN = 1.5  # times the best time to the target so far
_SOON = 1 / 8  # of the longest time, what runs have at first
_LEFT = 8  # strategies whose other settings are searched, where something is learned
_RATES = 2  # learning rates of each strategy that are given more time
_BATCH = 16  # runs that learn, until the next of them can be stopped earlier
_FACTOR = 2  # powers of two around the best learning rate that are searched further
_TURNS = 50  # times that a study may suggest what it knows already, before it is left

Choice = tuple[str, Mapping[str, int]]


class Search:
    """The candidates tried so far, each once, and their rows; `choices` holds their places in the space."""

    def __init__(self, scenario: Scenario, spaces: Mapping[str, Space], goal: Goal) -> None:
        self.scenario, self.spaces, self.goal = scenario, spaces, goal
        self.rows: dict[Candidate, Row] = {}
        self.choices: dict[Candidate, Mapping[str, int]] = {}
        self._rates: dict[str, int] = {}  # the best of each strategy's first learning rates
        self.longest = float("inf")  # s; what the file's bounds allow a run that learns
        self._horizon = float("inf")  # s; what runs that learn have before any has come to the target
        self._processes: int | None = None
        self._done: Callable[[], None] = lambda: None

    @property
    def size(self) -> int:
        """How many candidates there are."""
        return sum(space.size for space in self.spaces.values())

    def job(self, candidate: Candidate, margin: float = MARGIN) -> Job:
        """The simulation of a candidate. Raises ScenarioError if the cluster cannot run it.

        `margin`: how many times the best time so far it has to come to the target.
        """
        scenario = apply(self.scenario, candidate)
        if not self.goal.learns:
            return Job(candidate, scenario, False)
        best = min(filter(None, map(self.goal.value, self.rows.values())), default=None)
        time = self._horizon if best is None else margin * self.goal.seconds(best, hosts(scenario))
        return Job(candidate, scenario, True, min(time, self.longest))

    def run(self, budget: int, processes: int | None, done: Callable[[], None]) -> None:
        """Try at most `budget` candidates, of which there must be one for each strategy."""
        self._processes, self._done = processes, done
        usual: list[Choice] = [(name, space.start) for name, space in self.spaces.items()]
        if self.goal.learns:
            jobs = [
                Job(c := self.spaces[name].candidate(at), apply(self.scenario, c), True) for name, at in usual
            ]
            self.longest = self._horizon = max(job.time or 0 for job in timed(jobs, processes))
        if self.size <= budget:
            self._try([(name, at) for name, space in self.spaces.items() for at in space.choices()])
            return
        self._horizon *= _SOON
        self._try(usual)
        names = list(self.spaces)
        if self.goal.learns and budget - self.simulated >= 2:
            names = self._by_halving(budget)
        self._by_tpe(names, budget)

    def _try(self, choices: Sequence[Choice], again: bool = False) -> list[float]:
        """The scores of some choices, of which those that are new are simulated; failures are infinite."""
        candidates = [self.spaces[name].candidate(choice) for name, choice in choices]
        for candidate, (_, choice) in zip(candidates, choices, strict=True):
            self.choices.setdefault(candidate, choice)
        new = [each for each in dict.fromkeys(candidates) if again or each not in self.rows]
        first = not self.rows  # all have the same time, to see which do the same
        size = _BATCH if self.goal.learns and not first else max(1, len(new))
        for at in range(0, len(new), size):
            self._simulate(new[at : at + size])
        return [self.goal.score(self.rows[candidate]) for candidate in candidates]

    def _simulate(self, candidates: list[Candidate]) -> None:
        jobs: dict[Candidate, Job] = {}
        for candidate in candidates:
            try:
                jobs[candidate] = self.job(candidate)
            except ScenarioError as error:  # settings that are possible each by itself only
                self.rows[candidate] = {"status": "impossible", "error": str(error)}
        for candidate, row in zip(
            jobs, simulate_all(list(jobs.values()), self._processes, self._done), strict=True
        ):
            self.rows[candidate] = row

    @property
    def simulated(self) -> int:
        """How many candidates were simulated."""
        return sum(row["status"] != "impossible" for row in self.rows.values())

    def _by_halving(self, budget: int) -> list[str]:
        """The strategies that look best with the learning rate that suits them, and those that do the same.

        Each has several rates, briefly. Then the better half, down to `_LEFT`, has more rates and twice the
        time, until nobody's time would be longer.
        """
        like = self._twins()
        names = self._promising(list(like), (budget - self.simulated) // 2)
        self._try_rates(names)
        while True:
            names = self._promising(names, max(min(len(names), _LEFT), -(-len(names) // 2)))
            self._try_between(names, budget)
            if not any(self.goal.value(row) for row in self.rows.values()):
                self._horizon = min(2 * self._horizon, self.longest)  # what a run has until there is one
            short = [each for name in names for each in self._best_of(name, _RATES) if self._too_short(each)]
            if not short:
                break
            self._try([(each.family, self.choices[each]) for each in short], again=True)
        best = {name: self.choices[first] for name in names for first in self._best_of(name)}
        same = {twin: choice for name, choice in best.items() for twin in like[name] if RATE in choice}
        self._rates = {twin: choice[RATE] for twin, choice in same.items()}
        twins = [(twin, {**self.spaces[twin].start, RATE: rate}) for twin, rate in self._rates.items()]
        self._try(twins[: max(0, budget - self.simulated)])
        return [twin for name in names for twin in like[name]]

    def _twins(self) -> dict[str, list[str]]:
        """The strategies that do as they are usually set what no other did before; with each, who did too."""
        first: dict[Any, str] = {}
        like: dict[str, list[str]] = {}
        for name, space in self.spaces.items():
            row = self.rows[space.candidate(space.start)]
            known = first.setdefault(same_run(row) if row.get("updates") else name, name)
            like.setdefault(known, []).append(name)
        return like

    def _try_rates(self, names: list[str]) -> None:
        """Four times the usual learning rate, and then 16 times or a fourth, whichever looks better."""
        usual = [(name, self._begin(name)) for name in names if RATE in self.spaces[name].start]
        higher = self._try([(name, self._with_rate(name, choice, 2)) for name, choice in usual])
        steps = [4 if high < low else -2 for low, high in zip(self._try(usual), higher, strict=True)]
        third = zip(usual, steps, strict=True)
        self._try([(name, self._with_rate(name, choice, step)) for (name, choice), step in third])

    def _begin(self, name: str) -> Mapping[str, int]:
        """A strategy's usual settings; if they exchanged nothing yet, the most frequent exchanges."""
        start = self.spaces[name].start
        if self.rows[self.spaces[name].candidate(start)].get("updates"):
            return start
        cycles = [f"strategy.{key}" for key in CYCLES]
        return {key: 0 if key in cycles else place for key, place in start.items()}

    def _try_between(self, names: list[str], budget: int) -> None:
        """Twice the strategies' best learning rates so far, and half of them."""
        choices = []
        for name in names:
            for best in self._best_of(name):
                choice = self.choices[best]
                if RATE in choice:
                    choices += [(name, self._with_rate(name, choice, step)) for step in (1, -1)]
        self._try(choices[: max(0, budget - self.simulated)])

    def _with_rate(self, name: str, choice: Mapping[str, int], step: int) -> Mapping[str, int]:
        """A strategy's settings, with a learning rate so many powers of two higher."""
        (most,) = [len(knob.values) - 1 for knob in self.spaces[name].knobs if knob.key == RATE]
        return {**choice, RATE: min(max(choice[RATE] + step, 0), most)}

    def _too_short(self, candidate: Candidate) -> bool:
        """Whether a candidate had not the time that it would have now."""
        row = self.rows[candidate]
        if self.goal.value(row) is not None or row["loss"] is None:
            return False
        return bool(row["stop.time"] < 0.99 * (self.job(candidate).time or 0))

    def _by_tpe(self, names: list[str], budget: int) -> None:
        """Search all settings of these strategies."""
        numbers = {name: number for number, name in enumerate(self.spaces)}
        studies = {name: self._study(name, numbers[name]) for name in names}
        survivors = names
        for turn in range(ROUNDS):
            if turn or not self.goal.learns:  # these have been halved already
                survivors = self._promising(survivors, -(-len(survivors) // 2))
            left = max(0, budget - self.simulated)
            share = left // (ROUNDS - turn)
            given = {name: share // len(survivors) for name in survivors}
            for name in survivors[: share % len(survivors)]:  # the best first
                given[name] += 1
            while any(given.values()):
                asked = [name for name, count in given.items() if count]
                for name in self._ask(asked, studies):
                    given[name] -= 1

    def _promising(self, names: list[str], count: int) -> list[str]:
        """The best so many strategies, best first; where nothing is learned half of them in step.

        Those are ranked by themselves. If there are fewer, more of the others; one of each in any case.
        """
        order = sorted(names, key=self._best_score)
        steady = [name for name in order if self._best_score(name, True) < float("inf")]
        steady = [] if self.goal.learns else sorted(steady, key=lambda name: self._best_score(name, True))
        kept = steady[: -(-count // 2)]
        kept += [name for name in order if name not in kept][: max(count - len(kept), 1)]
        return [name for name in order if name in kept]

    def _best_score(self, name: str, steady: bool = False) -> float:
        """That of a strategy's best candidate; of those in step alone if `steady`."""
        rows = (row for c, row in self.rows.items() if c.family == name and row["status"] == "ok")
        return min((self.goal.score(row) for row in rows if in_step(row) or not steady), default=float("inf"))

    def _best_of(self, name: str, count: int = 1) -> list[Candidate]:
        """The best so many of a strategy's candidates."""
        rows = {c: row for c, row in self.rows.items() if c.family == name and row["status"] == "ok"}
        return sorted(rows, key=lambda each: self.goal.score(rows[each]))[:count]

    def _study(self, name: str, number: int) -> Any:
        """A study of a strategy that knows what has been tried of it."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=1000 * self.scenario.seed + number, n_startup_trials=4)
        study = optuna.create_study(sampler=sampler)
        for candidate, choice in self.choices.items():
            if candidate.family == name and self._is_near(name, choice):
                study.enqueue_trial(dict(choice))
                trial = study.ask()
                self._suggested(trial, name)
                study.tell(trial, *_told(self.goal.score(self.rows[candidate])))
        return study

    def _near(self, name: str, knob: Knob) -> range:
        """The values to search: all; of learning rates those within a factor of four of the first's best."""
        if knob.key != RATE or name not in self._rates:
            return range(len(knob.values))
        best = self._rates[name]
        return range(max(0, best - _FACTOR), min(len(knob.values), best + _FACTOR + 1))

    def _is_near(self, name: str, choice: Mapping[str, int]) -> bool:
        return all(choice[knob.key] in self._near(name, knob) for knob in self.spaces[name].knobs)

    def _suggested(self, trial: Any, name: str) -> dict[str, int]:
        return {
            knob.key: _suggestion(trial, knob, self._near(name, knob)) for knob in self.spaces[name].knobs
        }

    def _ask(self, names: list[str], studies: Mapping[str, Any]) -> list[str]:
        """Try something new of each strategy; the names again, for a trial that there is none of too."""
        trials: list[tuple[str, Any, Mapping[str, int]]] = []
        for name in names:
            space, study = self.spaces[name], studies[name]
            for _ in range(_TURNS):
                trial = study.ask()
                choice = self._suggested(trial, name)
                known = self.rows.get(space.candidate(choice))
                if known is None:
                    trials.append((name, trial, choice))
                    break
                study.tell(trial, *_told(self.goal.score(known)))
        scores = self._try([(name, choice) for name, _, choice in trials])
        for (name, trial, _), score in zip(trials, scores, strict=True):
            studies[name].tell(trial, *_told(score))
        return names


def _suggestion(trial: Any, knob: Knob, near: range) -> int:
    """A place in a knob's values; what has no order is a category to Optuna."""
    if knob.ordered or knob.key == RATE:
        return int(trial.suggest_int(knob.key, near[0], near[-1]))
    return int(trial.suggest_categorical(knob.key, list(near)))


def _told(score: float) -> tuple[Any, Any]:
    from math import isfinite

    from optuna.trial import TrialState

    return (score, TrialState.COMPLETE) if isfinite(score) else (None, TrialState.FAIL)
