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
from math import inf
from typing import Any

from lockstep.recommendation.ranking import Goal, in_step, same_run
from lockstep.recommendation.runs import Job, Row, hosts, simulate_all, timed
from lockstep.recommendation.space import CYCLES, RATE, UNORDERED, Candidate, Space, apply
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

    def __init__(self, scenario: Scenario, spaces: dict[str, Space], goal: Goal) -> None:
        self.scenario, self.spaces, self.goal = scenario, spaces, goal
        self.rows: dict[Candidate, Row] = {}
        self.choices: dict[Candidate, Mapping[str, int]] = {}
        self._rates: dict[str, int] = {}  # the best of each strategy's first learning rates
        self.longest = inf  # s; what the file's bounds allow a run that learns
        self._horizon = inf  # s; what runs that learn have before any has come to the target
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
            jobs: list[Job] = []
            for candidate in new[at : at + size]:
                try:
                    jobs.append(self.job(candidate))
                except ScenarioError as error:  # settings that are possible each by itself only
                    self.rows[candidate] = {"status": "impossible", "error": str(error)}
            for job, row in zip(jobs, simulate_all(jobs, self._processes, self._done), strict=True):
                self.rows[job.candidate] = row
        return [self._score(candidate) for candidate in candidates]

    def _score(self, candidate: Candidate) -> float:
        return self.goal.score(self.rows[candidate])

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
        most = len(self.spaces[name].knobs[RATE]) - 1
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
        for turn in range(ROUNDS):
            if turn or not self.goal.learns:  # these have been halved already
                names = self._promising(names, -(-len(names) // 2))
            share, rest = divmod(max(0, budget - self.simulated) // (ROUNDS - turn), len(names))
            for trial in range(share + 1):  # the best first
                self._ask(names if trial < share else names[:rest], studies)

    def _promising(self, names: list[str], count: int) -> list[str]:
        """The best so many strategies, best first; where nothing is learned half of them in step.

        Those are ranked by themselves. If there are fewer, more of the others; one of each in any case.
        """
        best = {name: self._best_of(name) for name in names}
        steady = {} if self.goal.learns else {name: self._best_of(name, steady=True) for name in names}
        order, apart = (
            sorted(some, key=lambda name: min(map(self._score, some[name]), default=inf))
            for some in (best, {name: found for name, found in steady.items() if found})
        )
        kept = apart[: -(-count // 2)]
        kept += [name for name in order if name not in kept][: max(count - len(kept), 1)]
        return [name for name in order if name in kept]

    def _best_of(self, name: str, count: int = 1, steady: bool = False) -> list[Candidate]:
        """The best so many of a strategy's candidates; of those in step alone if `steady`."""
        rows = {c: row for c, row in self.rows.items() if c.family == name and row["status"] == "ok"}
        return sorted((c for c, row in rows.items() if in_step(row) or not steady), key=self._score)[:count]

    def _study(self, name: str, number: int) -> tuple[Any, Mapping[str, Any]]:
        """A study of a strategy that knows what has been tried of it, and where it searches."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=1000 * self.scenario.seed + number, n_startup_trials=4)
        study, kinds = optuna.create_study(sampler=sampler), self._distributions(name)
        for candidate, choice in self.choices.items():
            if candidate.family == name and all(choice[key] in self._near(name, key) for key in kinds):
                value, state = _told(self._score(candidate))
                study.add_trial(
                    optuna.create_trial(params=dict(choice), distributions=kinds, value=value, state=state)
                )
        return study, kinds

    def _near(self, name: str, key: str) -> range:
        """The values to search: all; of learning rates those within a factor of four of the first's best."""
        count, best = len(self.spaces[name].knobs[key]), self._rates.get(name)
        if key != RATE or best is None:
            return range(count)
        return range(max(0, best - _FACTOR), min(count, best + _FACTOR + 1))

    def _distributions(self, name: str) -> dict[str, Any]:
        """Places in the knobs' values; what has no order is a category to Optuna."""
        from optuna.distributions import CategoricalDistribution, IntDistribution

        near = {key: self._near(name, key) for key in self.spaces[name].knobs}
        return {
            key: CategoricalDistribution(list(places))
            if key in UNORDERED and key != RATE
            else IntDistribution(places[0], places[-1])
            for key, places in near.items()
        }

    def _ask(self, names: Sequence[str], studies: Mapping[str, tuple[Any, Mapping[str, Any]]]) -> None:
        """Try something new of each strategy, if there is anything."""
        asked: list[tuple[Any, Any, Choice]] = []
        for name in names:
            study, kinds = studies[name]
            for _ in range(_TURNS):
                trial = study.ask(kinds)
                candidate = self.spaces[name].candidate(trial.params)
                if candidate not in self.rows:
                    asked.append((study, trial, (name, trial.params)))
                    break
                study.tell(trial, *_told(self._score(candidate)))
        scores = self._try([choice for _, _, choice in asked])
        for (study, trial, _), score in zip(asked, scores, strict=True):
            study.tell(trial, *_told(score))


def _told(score: float) -> tuple[Any, Any]:
    """A score as Optuna is told it: failures have none."""
    from optuna.trial import TrialState

    return (None, TrialState.FAIL) if score == inf else (score, TrialState.COMPLETE)
