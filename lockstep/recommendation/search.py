"""The search: every strategy as it is usually set, then where Optuna expects the best.

What is searched depends on the strategy, so it is suggested as the study goes: the strategy, then its own
knobs (TPE); workers and learning rates, which all have, are one for all. How trials come in batches does not
depend on the number of cores, so that the search is the same everywhere. A space that the budget covers is
tried as a whole. Where nothing is learned, the best in step is a second objective, and what is far behind in
a short run has no longer one.

Until a target accuracy, a strategy is worth little without the learning rate that suits it, so all begin with
three. Runs have a short time; promising ones have twice that, and so on (successive halving, Jamieson and
Talwalkar 2016). A run is stopped when it cannot win any more: at `MARGIN` times the best so far.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import inf, prod
from typing import Any

from lockstep.recommendation.in_step import in_step
from lockstep.recommendation.ranking import Goal
from lockstep.recommendation.runs import Job, Row, simulate_all, timed
from lockstep.recommendation.space import CYCLES, RATE, SHARED, UNORDERED, Candidate, Space, apply
from lockstep.scenarios import Scenario, ScenarioError

MARGIN = 1.5  # times the best time to the target so far
_FAR = 1.5  # times as good by their pilots: of the others no more need be known
_SOON = 8  # the longest time has so many times what runs have at first
_POWERS = (0, 2, 4)  # of two, times the usual learning rate: what all begin with
_BATCH = 16  # trials, until the next of them can be chosen better, and stopped earlier
_TURNS = 50  # times a trial that a study may suggest what it knows already, before it is left


class Search:
    """The candidates tried so far, each once, and their rows; `choices` holds their places in the space."""

    def __init__(self, scenario: Scenario, spaces: dict[str, Space], goal: Goal) -> None:
        self.scenario, self.spaces, self.goal = scenario, spaces, goal
        self.rows: dict[Candidate, Row] = {}
        self.choices: dict[Candidate, Mapping[str, int]] = {}
        self.longest = inf  # s; what the file's bounds allow a run that learns
        self._horizon = inf  # s; what runs that learn have before any has come to the target
        self._processes: int | None = None
        self._done: Callable[[], None] = lambda: None

    @property
    def size(self) -> int:
        """How many candidates there are."""
        return sum(space.size for space in self.spaces.values())

    @property
    def simulated(self) -> int:
        """How many candidates were simulated."""
        return sum(row["status"] != "impossible" for row in self.rows.values())

    def job(self, candidate: Candidate, margin: float = MARGIN) -> Job:
        """The simulation of a candidate. Raises ScenarioError if the cluster cannot run it.

        `margin`: how many times the best time so far it has to come to the target.
        """
        scenario = apply(self.scenario, candidate)
        if not self.goal.learns:
            return Job(candidate, scenario, False)
        best = min(filter(None, map(self.goal.value, self.rows.values())), default=None)
        time = self._horizon if best is None else margin * self.goal.seconds(best, scenario)
        return Job(candidate, scenario, True, min(time, self.longest))

    def run(self, budget: int, processes: int | None, done: Callable[[], None]) -> None:
        """Try at most `budget` candidates, of which there must be one for each strategy."""
        self._processes, self._done = processes, done
        if self.goal.learns:
            usual = [space.candidate(space.start) for space in self.spaces.values()]
            jobs = timed([Job(each, apply(self.scenario, each), True) for each in usual], processes)
            self.longest = self._horizon = max(job.time or 0 for job in jobs)
        if self.size <= budget:
            for space in self.spaces.values():
                for choice in space.choices():
                    self.choices.setdefault(space.candidate(choice), choice)
            self._simulate(list(self.choices))
        else:
            self._study(budget)
        self._horizon = self.longest

    def _simulate(self, candidates: Sequence[Candidate]) -> None:
        size = _BATCH if self.goal.learns else max(1, len(candidates))
        for at in range(0, len(candidates), size):
            jobs: list[Job] = []
            for candidate in candidates[at : at + size]:
                try:
                    jobs.append(self.job(candidate))
                except ScenarioError as error:  # settings that are possible each by itself only
                    self.rows[candidate] = {"status": "impossible", "error": str(error)}
            rows = simulate_all(jobs, self._processes, self._done, self._behind)
            for job, row in zip(jobs, rows, strict=True):
                self.rows[job.candidate] = row

    def _behind(self, pilots: Sequence[tuple[Job, Row]]) -> list[int]:
        """The places of those in step that others of the same strategy, also in step, are far ahead of.

        A longer run would not change that: the next step of workers in step begins when the last one ends,
        but for what the two overlap.
        """
        found = [*((candidate, row) for candidate, row in self.rows.items() if row["status"] == "ok")]
        found += [(job.candidate, row) for job, row in pilots]
        best: dict[str, Row] = {}
        for candidate, row in found:
            if in_step(row):
                best[candidate.family] = min(best.get(candidate.family, row), row, key=self.goal.score)

        def behind(job: Job, row: Row) -> bool:
            if self.goal.learns or not in_step(row):
                return False
            first, own = self.goal.value(best[job.candidate.family]), self.goal.value(row)
            return bool(first and own and self.goal.ratio(first, own) > _FAR)

        return [place for place, (job, row) in enumerate(pilots) if behind(job, row)]

    def _study(self, budget: int) -> None:
        """Let Optuna spend the budget, once it knows every strategy as it is usually set."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(
            directions=["maximize"] * (1 if self.goal.learns else 2),
            sampler=optuna.samplers.TPESampler(seed=self.scenario.seed, n_startup_trials=4),
            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
        )
        for name, space in self.spaces.items():
            study.enqueue_trial(_params(name, space.start))
        self._try(study, self._ask(study, len(self.spaces)))
        for power in _POWERS if self.goal.learns else ():
            for name in self.spaces:
                study.enqueue_trial(_params(name, self._with_rate(name, power)), skip_if_exists=True)
        for params in self._splits()[: budget // 2]:
            study.enqueue_trial(params, skip_if_exists=True)
        while asked := self._ask(study, min(_BATCH, budget - self.simulated)):
            self._try(study, asked)

    def _splits(self) -> list[dict[str, Any]]:
        """Every way to divide the workers into stages and parts of layers, with small micro-batches.

        The two are worth something together only, which a study of so few trials would not come upon.
        """
        found = []
        for name, space in self.spaces.items():
            if "parallelism.tensor" not in space.knobs:
                continue
            both = [key for key in ("parallelism.pipeline", "parallelism.tensor") if key in space.knobs]
            for places in product(*(range(len(space.knobs[key])) for key in both)):
                devices = prod(space.knobs[key][at] for key, at in zip(both, places, strict=True))
                if self.scenario.cluster.workers % devices == 0:
                    choice = space.start | dict(zip(both, places, strict=True))
                    if "parallelism.micro_batches" in choice:
                        choice["parallelism.micro_batches"] = (
                            len(space.knobs["parallelism.micro_batches"]) - 1
                        )
                    found.append(_params(name, choice))
        return found

    def _with_rate(self, name: str, power: int) -> Mapping[str, int]:
        """A strategy's usual settings, with the learning rate times a power of two.

        If they exchanged nothing yet, with the most frequent exchanges.
        """
        space = self.spaces[name]
        choice = dict(space.start)
        if not self.rows[space.candidate(choice)].get("updates"):
            choice |= {key: 0 for key in map("strategy.{}".format, CYCLES) if key in choice}
        if RATE in choice:
            choice[RATE] = min(choice[RATE] + power, len(space.knobs[RATE]) - 1)
        return choice

    def _ask(self, study: Any, count: int) -> dict[Candidate, Any]:
        """Trials of so many new candidates, or of as many as the study comes upon."""
        from optuna.trial import TrialState

        asked: dict[Candidate, Any] = {}
        for _ in range(_TURNS * count):
            trial = study.ask()
            name = trial.suggest_categorical("strategy", list(self.spaces))
            choice = {key: _place(trial, name, key, len(v)) for key, v in self.spaces[name].knobs.items()}
            candidate = self.spaces[name].candidate(choice)
            if candidate in self.rows:
                study.tell(trial, self._merits(candidate))
            elif candidate in asked:
                study.tell(trial, state=TrialState.FAIL)
            else:
                self.choices[candidate] = choice
                asked[candidate] = trial
            if len(asked) == count:
                break
        return asked

    def _try(self, study: Any, asked: dict[Candidate, Any]) -> None:
        """Simulate trials: those that learn for a short time and, unless they are pruned, for longer."""
        from optuna.trial import TrialState

        step = 1
        while asked:
            self._horizon = self.longest * step / _SOON
            self._simulate(list(asked))
            step *= 2
            self._horizon = min(self.longest * step / _SOON, self.longest)
            for candidate, trial in list(asked.items()):
                merits = self._merits(candidate)
                if self._too_short(candidate):
                    trial.report(merits[0], step // 2)
                    if not trial.should_prune():
                        continue
                    study.tell(trial, state=TrialState.PRUNED)
                else:
                    study.tell(trial, merits)
                del asked[candidate]

    def _too_short(self, candidate: Candidate) -> bool:
        """Whether a candidate had not the time to come to the target that it would have now."""
        row = self.rows[candidate]
        if not self.goal.learns or row["status"] != "ok" or row["time_to_target_s"] or row["loss"] is None:
            return False
        return bool(row["stop.time"] < 0.99 * (self.job(candidate).time or 0))

    def _merits(self, candidate: Candidate) -> list[float]:
        """What a candidate is worth, 0 if nothing; where nothing is learned also what it is worth in step."""
        row = self.rows[candidate]
        score = self.goal.score(row)
        merit = max(0.0, -score) if self.goal.high else 1 / score
        return [merit] if self.goal.learns else [merit, merit * in_step(row)]


def _params(name: str, choice: Mapping[str, int]) -> dict[str, Any]:
    """A strategy and a choice of it as a study has them."""
    return {"strategy": name} | {_called(name, key): place for key, place in choice.items()}


def _called(name: str, key: str) -> str:
    return key if key in SHARED else f"{name} {key}"


def _place(trial: Any, name: str, key: str, count: int) -> int:
    """A place in the values of a strategy's knob; what has no order is a category to Optuna."""
    if key in UNORDERED and key not in SHARED:
        return int(trial.suggest_categorical(_called(name, key), list(range(count))))
    return int(trial.suggest_int(_called(name, key), 0, count - 1))
