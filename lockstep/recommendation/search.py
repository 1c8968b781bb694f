"""The search: every strategy as it is usually set, then where the promising ones are best.

Each strategy's knobs are searched by a study of its own (Optuna's TPE); the budget is shared out by
successive halving (Jamieson and Talwalkar 2016): `ROUNDS` times, the half of the strategies that looks best
shares an equal part. The best of those that learn in step stays in, for the others are held against it. How
trials come in batches does not depend on the number of cores, so that the search is the same everywhere. A
space that the budget covers is tried as a whole.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lockstep.recommendation.ranking import in_step
from lockstep.recommendation.runs import Job, Row, simulate_all
from lockstep.recommendation.space import Candidate, Space, apply
from scenarios import Scenario, ScenarioError

ROUNDS = 3
_TURNS = 50  # times that a study may suggest what it knows already, before it is left

Choice = tuple[str, Mapping[str, int]]
Score = Callable[[Row], float]  # lower is better


class Search:
    """The candidates tried so far, each once, and their rows; `choices` holds their places in the space."""

    def __init__(self, scenario: Scenario, spaces: Mapping[str, Space], learns: bool, score: Score) -> None:
        self.scenario, self.spaces, self._learns, self._score = scenario, spaces, learns, score
        self.rows: dict[Candidate, Row] = {}
        self.choices: dict[Candidate, Mapping[str, int]] = {}

    @property
    def size(self) -> int:
        """How many candidates there are."""
        return sum(space.size for space in self.spaces.values())

    def job(self, candidate: Candidate) -> Job:
        """The simulation of a candidate. Raises ScenarioError if the cluster cannot run it."""
        return Job(candidate, apply(self.scenario, candidate), self._learns)

    def run(self, budget: int, processes: int | None, done: Callable[[], None]) -> None:
        """Try at most `budget` candidates; every strategy's first, even if the budget is smaller."""
        if self.size <= budget:
            self._try([(name, at) for name, s in self.spaces.items() for at in s.choices()], processes, done)
            return
        self._try([(name, space.start) for name, space in self.spaces.items()], processes, done)
        self._by_tpe(budget, processes, done)

    def _try(self, choices: list[Choice], processes: int | None, done: Callable[[], None]) -> list[float]:
        """The scores of some choices, of which those that are new are simulated; failures are infinite."""
        candidates = [self.spaces[name].candidate(choice) for name, choice in choices]
        new: dict[Candidate, Job] = {}
        for candidate, (_, choice) in zip(candidates, choices, strict=True):
            if candidate not in self.rows and candidate not in new:
                self.choices.setdefault(candidate, choice)
                try:
                    new[candidate] = self.job(candidate)
                except ScenarioError as error:  # settings that are possible each by itself only
                    self.rows[candidate] = {"status": "impossible", "error": str(error)}
        for candidate, row in zip(new, simulate_all(list(new.values()), processes, done), strict=True):
            self.rows[candidate] = row
        return [self._score(self.rows[candidate]) for candidate in candidates]

    @property
    def simulated(self) -> int:
        """How many candidates were simulated."""
        return sum(row["status"] != "impossible" for row in self.rows.values())

    def _by_tpe(self, budget: int, processes: int | None, done: Callable[[], None]) -> None:
        studies = {name: self._study(name, number) for number, name in enumerate(self.spaces)}
        survivors = list(self.spaces)
        for turn in range(ROUNDS):
            survivors = self._promising(survivors, -(-len(survivors) // 2))
            left = max(0, budget - self.simulated)
            share = left // (ROUNDS - turn)
            given = {name: share // len(survivors) for name in survivors}
            for name in survivors[: share % len(survivors)]:  # the best first
                given[name] += 1
            while any(given.values()):
                asked = [name for name, count in given.items() if count]
                for name in self._ask(asked, studies, processes, done):
                    given[name] -= 1

    def _promising(self, names: list[str], count: int) -> list[str]:
        """The best so many strategies, best first, and the best of those that learn in step."""
        scores = {name: self._best_score(name) for name in names}
        order = sorted(names, key=lambda name: scores[name])
        steady = [name for name in order if any(in_step(row) for row in self._rows_of(name))]
        return order[:count] + [name for name in steady[:1] if name not in order[:count]]

    def _best_score(self, name: str) -> float:
        return min((self._score(row) for row in self._rows_of(name)), default=float("inf"))

    def _rows_of(self, name: str) -> list[Row]:
        return [row for c, row in self.rows.items() if c.strategy == name and row["status"] == "ok"]

    def _study(self, name: str, number: int) -> Any:
        """A study of a strategy that knows how it does as it is usually set."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=1000 * self.scenario.seed + number, n_startup_trials=4)
        study = optuna.create_study(sampler=sampler)
        space = self.spaces[name]
        study.enqueue_trial({key: int(at) for key, at in space.start.items()})
        trial = study.ask()
        choice = _suggested(trial, space)
        study.tell(trial, *_told(self._score(self.rows[space.candidate(choice)])))
        return study

    def _ask(
        self,
        names: list[str],
        studies: Mapping[str, Any],
        processes: int | None,
        done: Callable[[], None],
    ) -> list[str]:
        """Try something new of each strategy; the names again, for a trial that there is none of too."""
        trials: list[tuple[str, Any, Mapping[str, int]]] = []
        for name in names:
            space, study = self.spaces[name], studies[name]
            for _ in range(_TURNS):
                trial = study.ask()
                choice = _suggested(trial, space)
                known = self.rows.get(space.candidate(choice))
                if known is None:
                    trials.append((name, trial, choice))
                    break
                study.tell(trial, *_told(self._score(known)))
        scores = self._try([(name, choice) for name, _, choice in trials], processes, done)
        for (name, trial, _), score in zip(trials, scores, strict=True):
            studies[name].tell(trial, *_told(score))
        return names


def _suggested(trial: Any, space: Space) -> dict[str, int]:
    """A choice; what has no order is a category to Optuna."""
    return {
        knob.key: trial.suggest_int(knob.key, 0, len(knob.values) - 1)
        if knob.ordered or knob.key == "strategy.learning_rate"
        else trial.suggest_categorical(knob.key, list(range(len(knob.values))))
        for knob in space.knobs
    }


def _told(score: float) -> tuple[Any, Any]:
    from math import isfinite

    from optuna.trial import TrialState

    return (score, TrialState.COMPLETE) if isfinite(score) else (None, TrialState.FAIL)
