"""What `lockstep recommend` does: search by simulation, rank with fresh seeds, ask what would change it.

These are steps of a `Recommendation`. Each can be the last: what is found is there after any of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import pandas as pd
from pydantic_core import PydanticCustomError

from lockstep.analysis.cost import usd_per_hour
from lockstep.analysis.gains import Gain
from lockstep.recommendation.checkpoints import Advice, advise
from lockstep.recommendation.ranking import CLOSE, Goal, Ranked, best, firsts, ordered, same_run
from lockstep.recommendation.runs import EXCHANGES, Job, Row, simulate_all, simulated, stopping, until_target
from lockstep.recommendation.search import Search
from lockstep.recommendation.space import Candidate, Target, apply, factors_of, family, spaces, target_learns
from lockstep.recommendation.what_if import CHANGES, Answer, changed, means_something
from lockstep.resources import RESOURCES, experiments, gains
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.units import MONEY
from lockstep.strategies import StrategyError, find

__all__ = ["Recommendation", "Target"]

FINALISTS = 6  # strategies, each at its best, that are simulated with fresh seeds
SEEDS = 5
MARGIN = 3.0  # times the search's best time that they have to come to the target
BUDGET = {False: 100, True: 200}
"""Candidates that the search tries by default; True: until a target accuracy."""
MANY = 32  # workers
LONGEST_S = 60.0  # that a simulation of one candidate may take; most take less than one
Progress = Callable[[float], None]


class Recommendation:
    """A search of the strategies for a scenario's cluster and workload, and what has been found.

    `at_most`: what it may cost, such as "500 USD", to the target or, without one, of a million samples.
    Raises ScenarioError for a target that the scenario cannot have, for a strategy that is none or that
    the cluster cannot run, and where cost matters but hosts have no price.
    """

    def __init__(
        self,
        scenario: Scenario,
        target: Target | None = None,
        strategies: Sequence[str] = (),
        processes: int | None = None,
        at_most: str | None = None,
    ) -> None:
        self.scenario = scenario
        self.target = _target(scenario, target)
        most = None if at_most is None else _money(at_most)
        if self.target == "cost" or most is not None:
            _require_prices(scenario)
        self.goal = Goal(self.target, target_learns(scenario, self.target), most, scenario.stop.goal)
        for name in strategies:
            _check(name)
        found, self.left_out = spaces(scenario, self.target, strategies)
        if not found:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.left_out.items())
            raise ScenarioError(f"no strategy is left: {reasons}", key="--strategy")
        self.search_ = Search(scenario, found, self.goal)
        self.finals: dict[Candidate, list[Row]] = {}
        self.answers: list[Answer] = []
        self.gains: dict[Candidate, list[Gain]] = {}
        self.checkpoints: Advice | None = None
        self.interrupted = False
        self.beyond: list[str] = []  # strategies that the budget ends before
        self._processes, self._named = processes, bool(strategies)
        self._done, self._expected = 0, 1
        self._progress: Progress | None = None

    def run(self, budget: int | None = None, progress: Progress | None = None) -> "Recommendation":
        """All four steps, and itself; `budget`: candidates to try at most (`BUDGET` if None).

        With fewer than there are strategies, the file's own and the first of the others are tried.
        Raises ScenarioError if none of the simulations ended well.
        """
        self._progress = progress
        budget = budget or BUDGET[self.goal.learns]
        self._spare(budget)
        self._leave_out_what_takes_too_long()
        self._expected = self.expected(budget)
        try:
            self.search_.run(budget, self._processes, self._tick)
            self.rank()
            if not self.ranking:
                first = next(iter(self.search_.rows.values()))["error"]
                raise ScenarioError(f"no simulation of it ended well; the first: {first}")
            self.what_if()
            self.why()
            self.checkpoints = advise(self.best) if self.scenario.cluster.faults else None
        except KeyboardInterrupt:
            self.interrupted = True
            raise
        return self

    def _spare(self, budget: int) -> None:
        """Leave out the strategies that a budget has no candidate for: the file's own is the first."""
        found = self.search_.spaces
        self.beyond = sorted(found, key=lambda name: name != self._family)[budget:]
        for name in self.beyond:
            del found[name]
            self.left_out[name] = f"the budget of {budget} ends before it"

    def _leave_out_what_takes_too_long(self) -> None:
        """Leave out strategies that nobody named, and of which one simulation takes minutes.

        Where everyone sends to everyone at once, each message changes the rates of all others. It is looked
        at where there are many workers only, and by the clock.
        """
        if self.scenario.cluster.workers < MANY or self._named:
            return
        found = self.search_.spaces
        for name in [name for name in found if name != self._family]:
            candidate = found[name].candidate(found[name].start)
            job = Job(candidate, apply(self.scenario, candidate), False)
            if len(found) > 1 and job.takes() > LONGEST_S:
                del found[name]
                self.left_out[name] = "one simulation of it takes minutes or more; name it to try it"

    @property
    def _family(self) -> str:
        """The file's own strategy, with what it takes from others."""
        return family(self.scenario.strategy.name, factors_of(self.scenario))

    def expected(self, budget: int | None = None) -> int:
        """About how many simulations it makes."""
        finals, changes = (FINALISTS + 2) * SEEDS, len(CHANGES) * (FINALISTS + 2)
        searched = min(budget or BUDGET[self.goal.learns], self.search_.size)
        return searched + finals + changes + 2 * len(RESOURCES)

    def usual(self) -> list[Scenario]:
        """About what its simulations are: every strategy as it is usually set."""
        found = []
        for space in self.search_.spaces.values():
            candidate = space.candidate(space.start)
            scenario, stop = apply(self.scenario, candidate), self.scenario.stop
            if not self.goal.learns:
                steps = None if stop.time else max(stop.steps or 0, (EXCHANGES + 1) * candidate.cycle)
                scenario = stopping(scenario.sizes_only, steps=steps, time=stop.time)
            found.append(scenario)
        return found

    def _tick(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(min(0.99, self._done / self._expected))

    # the steps after the search

    def rank(self) -> None:
        """Simulate the best of the search again, with seeds that it has not seen."""
        jobs = [self.search_.job(each.candidate, MARGIN) for each in self._finalists()]
        for candidate, row in self._with_seeds(jobs, SEEDS):
            self.finals.setdefault(candidate, []).append(row)

    def _with_seeds(self, jobs: Iterable[Job], count: int) -> Iterator[tuple[Candidate, Row]]:
        """The runs of each job with so many seeds that the search has not seen, as they come."""
        seeds = [self.scenario.seed + 1 + turn for turn in range(count)]
        work = [(job, seeds[:1] if job.deterministic else seeds) for job in jobs]
        rows = simulate_all(
            [job.seeded(seed) for job, own in work for seed in own], self._processes, self._tick
        )
        for job, own in work:
            some = [next(rows) for _ in own]
            yield from ((job.candidate, row) for row in some)
            for seed in seeds[len(own) :]:  # which changes nothing
                self._tick()
                yield job.candidate, {**some[0], "seed": seed}

    def what_if(self) -> None:
        """Rank the finalists again on clusters that are a little different."""
        usual = [each.candidate for each in firsts(self.ranking)]
        for change in CHANGES:
            if not means_something(self.scenario, change):
                continue
            jobs: dict[Candidate, Job | Ranked] = {}  # or what is known, where nothing changes
            for each in self.ranking:
                job = self.search_.job(each.candidate, MARGIN)
                there = changed(job.scenario, change)
                if there is not None:
                    same = there == job.scenario
                    jobs[each.candidate] = each if same else job._replace(scenario=there)
            means = any(isinstance(jobs.get(each), Job) for each in usual)
            if usual[0] in jobs and means:
                self.answers.append(self._answer(change, usual, jobs))

    def _answer(
        self, change: str, usual: Sequence[Candidate], jobs: Mapping[Candidate, Job | Ranked]
    ) -> Answer:
        """Which finalist is best with a change: by one run each; several confirm another one."""
        ranked = self._ranked_again(jobs, 1)
        found = [each.candidate for each in firsts(ranked)]
        if found != usual:
            some = {each: jobs[each] for each in [*usual, *found] if each in jobs}
            again = self._ranked_again(some, SEEDS)
            found = [each.candidate for each in firsts(again, usual)]
            ranked = ordered([*again, *(each for each in ranked if each.candidate not in some)])
        return Answer(change, tuple(usual), tuple(found), ranked)

    def _ranked_again(self, jobs: Mapping[Candidate, Job | Ranked], count: int) -> list[Ranked]:
        rows: dict[Candidate, list[Row]] = {}
        for candidate, row in self._with_seeds((job for job in jobs.values() if isinstance(job, Job)), count):
            rows.setdefault(candidate, []).append(row)
        for candidate, known in jobs.items():
            if isinstance(known, Ranked):
                rows[candidate] = [*known.rows[:count]]
        return ordered(Ranked(candidate, tuple(some), self.goal) for candidate, some in rows.items())

    def why(self) -> None:
        """Try what would make the answer faster: a tenth more of each resource (lockstep/resources.py)."""
        for each in firsts(self.ranking):
            row, job = each.rows[0], self.search_.job(each.candidate, MARGIN)
            if not row["duration_s"]:
                continue
            tried = experiments(job.seeded(row["seed"]).scenario, row)
            rows = simulated(list(tried.values()), self._processes, self._tick)
            rates = {kind: found["throughput"] for kind, found in zip(tried, rows, strict=True)}
            self.gains[each.candidate] = gains(job.scenario, rates)

    # what was found

    @property
    def ranking(self) -> list[Ranked]:
        """Best first: the finalists or, before the runs of any are complete, the best of the search."""
        complete = {candidate: rows for candidate, rows in self.finals.items() if len(rows) == SEEDS}
        if not complete:
            once = {same_run(each.rows[0]): each for each in reversed(self._of_search())}
            return ordered(once.values())
        return ordered(Ranked(candidate, tuple(rows), self.goal) for candidate, rows in complete.items())

    def _of_search(self) -> list[Ranked]:
        """Each strategy at its best with the search's seed, best first.

        Where nothing is learned, at its best in step and at its best otherwise.
        """
        found: dict[Any, list[Ranked]] = {}
        for candidate, row in self.search_.rows.items():
            if row["status"] == "ok":
                each = Ranked(candidate, (row,), self.goal)
                apart = not self.goal.learns and each.in_step
                found.setdefault((candidate.family, apart), []).append(each)
        return ordered(self._one_of(tried) for tried in found.values())

    def _one_of(self, tried: Sequence[Ranked]) -> Ranked:
        """A strategy's best settings; where nothing is learned, of those that are alike the tightest."""
        first = min(tried, key=lambda each: each.key)
        if self.goal.learns or first.mean is None:
            return first
        alike = [each for each in tried if each.mean and self.goal.ratio(first.mean, each.mean) <= 1 + CLOSE]
        distances = self.search_.spaces[first.candidate.family].distance
        return min(alike, key=lambda each: (distances(self.search_.choices[each.candidate]), each.key))

    def _finalists(self) -> list[Ranked]:
        """The best strategies, the best that learns in step, and the file's own; what did the same once.

        Where nothing is learned, half of the best are of those in step, if there are so many.
        """
        tried, chosen = self._of_search(), dict[Any, Ranked]()
        steady = [each for each in tried if each.in_step]
        rest = tried if self.goal.learns else [each for each in tried if not each.in_step]
        half = 0 if self.goal.learns else FINALISTS // 2
        for some, most in ((steady, half), (rest, FINALISTS), (tried, FINALISTS)):
            for each in some:
                if len(chosen) < most:
                    chosen.setdefault(same_run(each.rows[0]), each)
        for each in [*steady[:1], *self._own()]:
            chosen.setdefault(same_run(each.rows[0]), each)
        return list(chosen.values())

    def _own(self) -> list[Ranked]:
        """The file's strategy as it is there, if it was tried."""
        own = self.own
        row = self.search_.rows.get(own) if own else None
        return [Ranked(own, (row,), self.goal)] if own and row and row["status"] == "ok" else []

    @property
    def own(self) -> Candidate | None:
        """The candidate that is the file's strategy as it is there."""
        space = self.search_.spaces.get(self._family)
        return space.candidate(space.start) if space and space.as_given else None

    def twins(self, ranked: Ranked) -> list[Candidate]:
        """Other strategies whose best did in the search the very same as a ranked one."""
        row = self.search_.rows[ranked.candidate]
        others = (each for each in self._of_search() if each.candidate.family != ranked.candidate.family)
        return [each.candidate for each in others if same_run(each.rows[0]) == same_run(row)]

    @property
    def best(self) -> Scenario:
        """The scenario of the recommended candidate, ready to simulate or run."""
        return self.scenario_of(best(self.ranking))

    def scenario_of(self, ranked: Ranked) -> Scenario:
        """A ranked candidate's scenario; without a target as long as it has to be, with one the longest.

        Where the file learns without a target, its bounds are kept.
        """
        found = self.search_.job(ranked.candidate).scenario
        if self.goal.learns:
            return until_target(found, self.search_.longest)
        if self.scenario.workload.learns:
            return found
        row = ranked.rows[0]
        return stopping(found, time=row.get("stop.time") or self.search_.job(ranked.candidate).seconds(row))

    @property
    def table(self) -> pd.DataFrame:
        """All runs of the search and of the ranking, a row each, as a sweep's: `point` is the candidate."""
        rows = []
        for point, (candidate, row) in enumerate(self.search_.rows.items()):
            if row["status"] != "impossible":
                found = [("search", row), *(("ranking", again) for again in self.finals.get(candidate, ()))]
                rows += [{"point": point, "stage": stage, **each} for stage, each in found]
        return pd.DataFrame(rows)


def _target(scenario: Scenario, target: str | None) -> Target:
    learns = scenario.stop.goal is not None
    if target is None:
        return "time" if learns else "throughput"
    if target not in get_args(Target):
        raise ScenarioError(f"must be {', '.join(get_args(Target))}, not {target!r}", key="--target")
    if target == "time" and not learns:
        hint = (
            "give what to reach, such as --set stop.target_accuracy=0.9"
            if scenario.workload.learns
            else "this workload learns nothing: use --target throughput, machine-hours or cost"
        )
        raise ScenarioError(f"time needs stop.target_accuracy or stop.target; {hint}", key="--target")
    return target  # type: ignore[return-value]


def _money(text: str) -> float:
    try:
        return MONEY.parse(text)
    except PydanticCustomError as error:
        raise ScenarioError(error.message(), key="--at-most") from None


def _require_prices(scenario: Scenario) -> None:
    if usd_per_hour(scenario.cluster, has_servers=True) is None:
        hint = "such as --set 'cluster.price=3 USD/h' (docs/cost.md)"
        raise ScenarioError(f"what a host costs is not known; give it, {hint}", key="cluster.price")


def _check(name: str) -> None:
    try:
        find(name, {})
    except StrategyError as error:
        raise ScenarioError(error.problem, key="--strategy") from None
