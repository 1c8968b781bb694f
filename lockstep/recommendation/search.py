"""The search: every strategy as it is usually set, then where the promising ones are best.

Each strategy's knobs are searched by a study of its own (Optuna's TPE); the budget is shared out by
successive halving (Jamieson and Talwalkar 2016): `ROUNDS` times, the half of the strategies that looks best
shares an equal part. The best of those that learn in step stays in, for the others are held against it. How
trials come in batches does not depend on the number of cores, so that the search is the same everywhere. A
space that the budget covers is tried as a whole.

Until a target accuracy, every strategy has three learning rates to begin with, and a run is stopped when it
cannot win any more: at `MARGIN` times the best so far or, before any was there, early, and the promising
ones are run again for longer.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lockstep.recommendation.ranking import Goal, in_step
from lockstep.recommendation.runs import Job, Row, hosts, simulate_all, timed
from lockstep.recommendation.space import RATE, Candidate, Space, apply
from scenarios import Scenario, ScenarioError

ROUNDS = 3
MARGIN = 2.0  # times the best time to the target so far
_SOON = 1 / 8  # of the longest time, where nothing has come to the target yet
_BATCH = 16  # runs that learn, until the next of them can be stopped earlier
_TURNS = 50  # times that a study may suggest what it knows already, before it is left

Choice = tuple[str, Mapping[str, int]]


class Search:
    """The candidates tried so far, each once, and their rows; `choices` holds their places in the space."""

    def __init__(self, scenario: Scenario, spaces: Mapping[str, Space], goal: Goal) -> None:
        self.scenario, self.spaces, self.goal = scenario, spaces, goal
        self.rows: dict[Candidate, Row] = {}
        self.choices: dict[Candidate, Mapping[str, int]] = {}
        self.longest = float("inf")  # s; what the file's bounds allow a run that learns
        self._horizon = float("inf")  # s; what runs that learn have before any has come to the target
        self._spent = 0
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
        """Make at most `budget` simulations; every strategy's first, even if the budget is smaller."""
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
        if self.goal.learns:
            self._try_rates()
            self._try_longer(budget)
        self._by_tpe(budget)

    def _try(self, choices: list[Choice], again: bool = False) -> list[float]:
        """The scores of some choices, of which those that are new are simulated; failures are infinite."""
        candidates = [self.spaces[name].candidate(choice) for name, choice in choices]
        for candidate, (_, choice) in zip(candidates, choices, strict=True):
            self.choices.setdefault(candidate, choice)
        new = [each for each in dict.fromkeys(candidates) if again or each not in self.rows]
        size = _BATCH if self.goal.learns else max(1, len(new))
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
            self._spent += 1

    @property
    def simulated(self) -> int:
        """How many candidates were simulated."""
        return sum(row["status"] != "impossible" for row in self.rows.values())

    def _try_rates(self) -> None:
        """Four times the usual learning rate, and then 16 times or a fourth, whichever looks better."""
        usual = {name: space.start for name, space in self.spaces.items() if RATE in space.start}
        higher = {name: self._with_rate(name, 2) for name in usual}
        scores = self._try([*usual.items(), *higher.items()])
        steps = [4 if scores[len(usual) + at] < scores[at] else -2 for at in range(len(usual))]
        self._try([(name, self._with_rate(name, step)) for name, step in zip(usual, steps, strict=True)])

    def _with_rate(self, name: str, step: int) -> Mapping[str, int]:
        """A strategy's usual settings, with the rate so many powers of two from the usual one."""
        space = self.spaces[name]
        (most,) = [len(knob.values) - 1 for knob in space.knobs if knob.key == RATE]
        return {**space.start, RATE: min(max(space.start[RATE] + step, 0), most)}

    def _try_longer(self, budget: int) -> None:
        """Run the strategies' best again that were stopped early, until none of these can win."""
        names = list(self.spaces)
        while True:
            if not any(self.goal.value(row) for row in self.rows.values()):
                if self._horizon >= self.longest:
                    return
                self._horizon *= 2
                names = self._promising(names, -(-len(names) // 2))
            best = [self._best_of(name) for name in names]
            short = [each for each in best if each is not None and self._too_short(each)]
            if not short or self._spent + len(short) > budget:
                return
            self._try([(each.strategy, self.choices[each]) for each in short], again=True)

    def _too_short(self, candidate: Candidate) -> bool:
        """Whether a candidate had not the time that it would have now."""
        row = self.rows[candidate]
        if self.goal.value(row) is not None or row["loss"] is None:
            return False
        return bool(row["stop.time"] < 0.99 * (self.job(candidate).time or 0))

    def _by_tpe(self, budget: int) -> None:
        studies = {name: self._study(name, number) for number, name in enumerate(self.spaces)}
        survivors = list(self.spaces)
        for turn in range(ROUNDS):
            survivors = self._promising(survivors, -(-len(survivors) // 2))
            left = max(0, budget - self._spent)
            share = left // (ROUNDS - turn)
            given = {name: share // len(survivors) for name in survivors}
            for name in survivors[: share % len(survivors)]:  # the best first
                given[name] += 1
            while any(given.values()):
                asked = [name for name, count in given.items() if count]
                for name in self._ask(asked, studies):
                    given[name] -= 1

    def _promising(self, names: list[str], count: int) -> list[str]:
        """The best so many strategies, best first, and the best of those that learn in step."""
        scores = {name: self._best_score(name) for name in names}
        order = sorted(names, key=lambda name: scores[name])
        steady = [name for name in order if self._in_step(name)]
        return order[:count] + [name for name in steady[:1] if name not in order[:count]]

    def _best_score(self, name: str) -> float:
        best = self._best_of(name)
        return float("inf") if best is None else self.goal.score(self.rows[best])

    def _best_of(self, name: str) -> Candidate | None:
        rows = {c: row for c, row in self.rows.items() if c.strategy == name and row["status"] == "ok"}
        return min(rows, key=lambda each: self.goal.score(rows[each]), default=None)

    def _in_step(self, name: str) -> bool:
        return any(in_step(row) for c, row in self.rows.items() if c.strategy == name)

    def _study(self, name: str, number: int) -> Any:
        """A study of a strategy that knows what has been tried of it."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=1000 * self.scenario.seed + number, n_startup_trials=4)
        study = optuna.create_study(sampler=sampler)
        space = self.spaces[name]
        for candidate, choice in self.choices.items():
            if candidate.strategy == name:
                study.enqueue_trial(dict(choice))
                trial = study.ask()
                _suggested(trial, space)
                study.tell(trial, *_told(self.goal.score(self.rows[candidate])))
        return study

    def _ask(self, names: list[str], studies: Mapping[str, Any]) -> list[str]:
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
                study.tell(trial, *_told(self.goal.score(known)))
        scores = self._try([(name, choice) for name, _, choice in trials])
        for (name, trial, _), score in zip(trials, scores, strict=True):
            studies[name].tell(trial, *_told(score))
        return names


def _suggested(trial: Any, space: Space) -> dict[str, int]:
    """A choice; what has no order is a category to Optuna."""
    return {
        knob.key: trial.suggest_int(knob.key, 0, len(knob.values) - 1)
        if knob.ordered or knob.key == RATE
        else trial.suggest_categorical(knob.key, list(range(len(knob.values))))
        for knob in space.knobs
    }


def _told(score: float) -> tuple[Any, Any]:
    from math import isfinite

    from optuna.trial import TrialState

    return (score, TrialState.COMPLETE) if isfinite(score) else (None, TrialState.FAIL)
