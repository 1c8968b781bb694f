"""`lockstep recommend` against brute force and closed forms."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import lockstep
from lockstep import Scenario, recommendation, terminal
from lockstep.recommendation import Recommendation, runs, space
from lockstep.recommendation.ranking import Goal, Ranked, best, clearly_better, firsts, ordered
from lockstep.recommendation.runs import Job, timed
from lockstep.recommendation.search import Search
from lockstep.recommendation.show import as_json, show
from lockstep.recommendation.space import Candidate
from lockstep.recommendation.what_if import CHANGES
from lockstep.recommendation.words import answer, changes, how, to_learn
from lockstep.scenarios import ScenarioError, dump, override
from lockstep.strategies import STRATEGIES
from tests.support.command_line import Lockstep, fine
from tests.support.nightly import drawn
from tests.support.recommending import BATCH, GRADIENT_S, WORKERS, cluster, found
from tests.support.scenarios import scenario


def recommended(what: Recommendation) -> Ranked:
    return best(what.ranking)


NOISY: dict[str, Any] = {
    "cluster__compute": {"time": {"distribution": "lognormal", "mean": "10 ms", "cv": 0.3}},
    "cluster__stragglers": [{"worker": 3, "slowdown": 2}],
}


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_space_that_the_budget_covers_is_tried_as_a_whole() -> None:
    names = ("asynchronous", "backup-workers")
    what = cluster(0.02, cluster__stragglers=[{"worker": 3, "slowdown": 2}])  # all seeds are alike
    result = found(what, *names, budget=1000)
    goal, worths = Goal("throughput", False), {}
    for name in names:
        each = space.Space(what, name, "throughput")
        for choice in each.choices():
            candidate = each.candidate(choice)
            (job,) = timed([Job(candidate, space.apply(what, candidate), False)], 1)
            run = lockstep.simulate(job.bounded)
            worths[candidate] = run.metrics["throughput"]
    assert set(worths) == {c for c, row in result.search_.rows.items() if row["status"] == "ok"}
    assert {c: goal.value(row) for c, row in result.search_.rows.items()} == worths
    highest, first = max(worths.values()), recommended(result)
    fastest = firsts(result.ranking)[-1]
    assert fastest.mean == pytest.approx(highest) or (fastest is first and (first.mean or 0) > highest / 1.02)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_the_search_comes_near_the_best_of_all_with_a_part_of_the_budget() -> None:
    what = cluster(0.02, **NOISY)
    names = ("downpour", "soft-sync")
    goal = Goal("throughput", False)
    spaces, _ = space.spaces(what, "throughput", names)
    whole, part = (Search(what, spaces, goal) for _ in range(2))
    whole.run(10_000, 1, lambda: None)
    part.run(whole.size // 4, 1, lambda: None)
    assert part.simulated <= whole.size // 4
    highest, near = (max(goal.value(row) or 0 for row in each.rows.values()) for each in (whole, part))
    assert near > 0.98 * highest


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "binomial", "parameter-server"])
def test_workers_exchange_as_often_as_they_should(algorithm: str) -> None:
    """A bound that falls on the end of a round, but for rounding, may cut it off."""
    candidate = Candidate("all-reduce", (("strategy.algorithm", algorithm),))
    (job,) = timed([Job(candidate, space.apply(cluster(GRADIENT_S / 2), candidate), False)], 1)
    assert lockstep.simulate(job.bounded).metrics["updates"] == runs.EXCHANGES


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_what_is_in_step_comes_first_and_the_rest_apart() -> None:
    """Where nothing is learned nobody knows what those lose that do not wait for the straggler."""
    what = cluster(cluster__stragglers=[{"worker": 3, "slowdown": 20}])
    result = found(what, "synchronous", "asynchronous")
    first, faster = firsts(result.ranking)
    assert result.ranking[0].candidate == first.candidate == recommended(result).candidate
    assert (first.candidate.strategy, first.in_step) == ("synchronous", True)
    assert first.mean == pytest.approx(WORKERS * BATCH / GRADIENT_S / 20)
    assert faster.candidate.strategy == "asynchronous"
    assert faster.mean == pytest.approx(BATCH / GRADIENT_S * (WORKERS - 1 + 1 / 20), rel=0.02)
    steady = [each.in_step for each in result.ranking]
    assert steady == sorted(steady, reverse=True)
    times = (faster.mean or 0) / (first.mean or 1)
    assert f"if it needs fewer than {times:.2f} times the samples" in " ".join(answer(result))
    document = as_json(result)
    assert document["recommended"] == "synchronous"
    entries = {each["strategy"]: each["if_fewer_samples_than"] for each in document["ranking"]}
    assert entries == {"synchronous": None, "asynchronous": pytest.approx(times)}
    flips = {each.change: each.best for each in result.answers}
    assert [c.strategy for c in flips["no stragglers"]] == ["synchronous"]
    assert "no stragglers: nothing is clearly faster than synchronous, in step" in " ".join(changes(result))


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_what_a_change_does_not_touch_is_still_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As who leaves a straggler out is as fast without one, and no slower than those who do not."""

    def only_in_step(what: Scenario, change: str) -> Scenario:
        return what if what.strategy.name == "local-sgd" else CHANGES[change](what)

    monkeypatch.setattr(recommendation, "changed", only_in_step)
    result = found(cluster(0.1), "all-reduce", "local-sgd")
    before = firsts(result.ranking)
    asked = {each.change: each for each in result.answers}
    assert list(asked) == ["2× bandwidth", "½ bandwidth"]
    for each in asked.values():
        assert not each.other
        assert each.of(before[1].candidate).rows == before[1].rows[:1]
        assert each.of(before[0].candidate).mean != before[0].mean


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_straggler_is_not_added_to_those_that_leave_the_files_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "_WORKERS", (3 / 4,))
    change = "one worker three times slower"
    monkeypatch.setattr(recommendation, "CHANGES", {change: CHANGES[change]})
    with_one = cluster(cluster__stragglers=[{"worker": 3, "slowdown": 2}])
    assert not found(with_one, "all-reduce", budget=3).answers
    assert [each.change for each in found(cluster(), "all-reduce", budget=3).answers] == [change]


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_who_waits_for_fewer_is_as_fast_as_those() -> None:
    what = cluster(cluster__stragglers=[{"worker": 3, "slowdown": 20}])
    backups = firsts(found(what, "synchronous", "backup-workers").ranking)[1]
    assert backups.mean == pytest.approx(BATCH / GRADIENT_S * (WORKERS - 1), rel=0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_slow_network_wants_the_longest_period() -> None:
    _, first = firsts(found(cluster(0.1), "local-sgd", "all-reduce", budget=500).ranking)
    assert dict(first.candidate.settings)["strategy.averaging_period"] == 64
    assert first.mean == pytest.approx(WORKERS * BATCH / (GRADIENT_S + 0.1 / 64), rel=0.01)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_without_stragglers_and_network_it_stays_in_step() -> None:
    result = found(cluster(), "synchronous", "asynchronous", budget=9)
    assert recommended(result).in_step
    assert recommended(result).mean == pytest.approx(WORKERS * BATCH / GRADIENT_S)
    assert all(not clearly_better(a, b) for a in result.ranking for b in result.ranking)
    assert "The file's asynchronous does as well." in answer(result)
    assert [each["as_good"] for each in as_json(result)["ranking"]] == [
        False,
        False,
    ]  # each the first of its kind


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_with_twice_the_bandwidth_there_is_nothing_to_gain_out_of_step() -> None:
    """Exchanges of 4% of a gradient's time are worth avoiding, those of 2% are not."""
    result = found(cluster(0.04 * GRADIENT_S), "all-reduce", "local-sgd", budget=500)
    assert [each.candidate.strategy for each in firsts(result.ranking)] == ["all-reduce", "local-sgd"]
    flips = {each.change: [one.strategy for one in each.best] for each in result.answers if each.other}
    assert flips["2× bandwidth"] == ["all-reduce"]
    assert "½ bandwidth" not in flips
    assert any(line.startswith("2× bandwidth: nothing is clearly faster") for line in changes(result))
    assert "if it needs fewer than 1.03 times the samples" in " ".join(answer(result))


@pytest.mark.nightly
@pytest.mark.usefixtures("few")
def test_it_is_the_same_again_and_with_other_jobs() -> None:
    what = cluster(0.02, **NOISY)
    names = ("synchronous", "soft-sync")
    one = Recommendation(what, None, names, 1).run(6)
    two = Recommendation(what, None, names, 2).run(6)
    for each in (one, two):
        assert each.search_.simulated == 6
    assert json.dumps(as_json(one)) == json.dumps(as_json(two))
    assert one.table.equals(two.table)


@pytest.mark.slow
def test_every_strategy_takes_part_or_says_why_not() -> None:
    spaces, left_out = space.spaces(cluster(), "throughput")
    assert {*spaces, *left_out} == set(STRATEGIES)
    assert left_out["adag"] == "another name for agn"
    assert "share one memory" in left_out["hogwild"]
    assert all(each.candidate(each.start) for each in spaces.values())
    two_servers, left_out = space.spaces(cluster(cluster__servers=2), "throughput")
    backups = two_servers["backup-workers"]
    assert "servers=1" in backups.candidate(backups.start).words


@pytest.mark.slow
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("budget", drawn([1, 3, 7], one_in=3))
def test_the_budget_bounds_what_is_tried(budget: int) -> None:
    result = Recommendation(cluster(0.01, strategy="downpour"), None, (), 1).run(budget)
    assert result.search_.simulated <= budget
    assert result.own in result.search_.rows
    assert "the budget ended before" in how(result)
    assert {*result.search_.spaces, *result.left_out} == set(STRATEGIES)
    assert any(why == f"the budget of {budget} ends before it" for why in result.left_out.values())


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_what_would_make_the_answer_faster_is_tried() -> None:
    result = found(cluster(0.03), "all-reduce", "local-sgd")
    first, faster = firsts(result.ranking)
    gains = {each.kind: each.gain for each in result.gains[first.candidate]}
    assert gains == pytest.approx({"workers' links": (1 - 1 / 1.1) * 3 / 4, "computing": (1 - 1 / 1.1) / 4})
    assert result.gains[faster.candidate][0].kind == "computing"
    why = as_json(result)["why"]
    assert [each["kind"] for each in why[first.candidate.label]] == ["workers' links", "computing"]


def test_fewer_workers_leave_out_those_at_the_end_and_do_the_same_work() -> None:
    what = scenario(cluster__stragglers=[{"worker": 3, "slowdown": 3}], stop__steps=30)
    there = space.apply(what, Candidate("synchronous", (("cluster.workers", 3),)))
    assert (there.cluster.workers, there.cluster.stragglers, there.stop.steps) == (3, (), 40)


def rows(*times: float | None, **more: Any) -> tuple[dict[str, Any], ...]:
    common = {"status": "ok", "hosts": 5, "accuracy": 0.5, "loss": 1.0, **more}
    return tuple({**common, "time_to_target_s": time} for time in times)


def test_not_reached_is_worse_than_reached() -> None:
    goal, who = Goal("time", True), Candidate("asynchronous")
    often, seldom = Ranked(who, rows(9.0, 9.5, 8.5), goal), Ranked(who, rows(1.0, None, None), goal)
    never, near = (
        Ranked(who, rows(None, None, None), goal),
        Ranked(who, rows(*[None] * 3, accuracy=0.8), goal),
    )
    diverged = Ranked(who, rows(*[None] * 3, loss=None), goal)
    assert ordered([diverged, never, seldom, near, often]) == [often, seldom, near, never, diverged]
    assert clearly_better(often, seldom)
    assert Goal("machine-hours", True).value(often.rows[0]) == pytest.approx(9.0 * 5 / 3600)


def test_what_applied_nothing_is_worth_nothing() -> None:
    """So is whoever's first push does not fit into the time: last, and no error."""
    row = {**rows(None)[0], "throughput": 0.0}
    assert Goal("throughput", False).value(row) is None
    assert Goal("machine-hours", False).value(row) is None


def test_two_differ_by_their_differences_seed_by_seed() -> None:
    goal, who = Goal("time", True), Candidate("asynchronous")
    fast, slow = Ranked(who, rows(10.0, 20.0, 30.0), goal), Ranked(who, rows(11.0, 21.1, 30.9), goal)
    other = Ranked(who, rows(14.0, 14.0, 35.0), goal)
    assert clearly_better(fast, slow)
    assert not clearly_better(fast, other)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_the_command_writes_what_it_finds(command: Lockstep, tmp_path: Path) -> None:
    file, out = tmp_path / "small.yaml", tmp_path / "out"
    file.write_text(dump(cluster(0.02, **NOISY)))
    arguments = ["recommend", file, "--strategy", "synchronous", "--strategy", "asynchronous", "--jobs", 1]
    shown = fine(command(*arguments, "--budget", 6, "--out", out))
    document = json.loads((out / "recommendation.json").read_text())
    assert " ".join(document["answer"].split()) in " ".join(shown.replace(" - ", " ").split())
    again = json.loads(fine(command(*arguments, "--budget", 6, "--json")))
    assert again == document
    import pandas as pd

    table = pd.read_parquet(out / "results.parquet")
    assert {"point", "run", "status", "error", "strategy.name", "throughput"} <= set(table)
    assert table["run"].is_unique
    (first,) = [each for each in document["ranking"] if each["label"] == document["recommended"]]
    seed = first["seeds"][0]
    run = json.loads(fine(command("simulate", out / "best.yaml", "--set", f"seed={seed}", "--json")))
    assert run["throughput"] == first["values"][0]


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_nothing_is_cut_off_on_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "_console", lambda: Console(width=80, markup=False, highlight=False))
    show(found(cluster(0.02, **NOISY), "downpour", "synchronous", budget=4))
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "communication_window=" in said
    assert "…" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--target", "time"), "--target: time needs stop.target_accuracy"),
        (("--target", "speed"), "--target: must be time, throughput, machine-hours"),
        (("--strategy", "sinchronous"), "did you mean 'synchronous'?"),
        (("--strategy", "hogwild"), "its workers share one memory"),
        (("--budget", "0"), "--budget"),
    ],
)
def test_bad_input(command: Lockstep, sizes_only: Path, options: tuple[str, ...], said: str) -> None:
    ended = command("recommend", sizes_only, *options, "--out", sizes_only.parent / "out")
    assert ended.status == 2
    assert said in ended.err
    assert not (sizes_only.parent / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "says"),
    [("rank", "Interrupted: one run each"), ("what_if", "Interrupted: strategies")],
)
def test_what_was_found_until_ctrl_c_is_kept(
    step: str, says: str, command: Lockstep, sizes_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Recommendation) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recommendation, step, interrupted)
    names = ["--strategy", "synchronous", "--strategy", "asynchronous"]
    ended = command("recommend", sizes_only, *names, "--budget", 6, "--jobs", 1, "--out", tmp_path / "out")
    assert ended.status == 130
    assert says in " ".join(ended.out.split())
    assert json.loads((tmp_path / "out" / "recommendation.json").read_text())["interrupted"]
    assert (tmp_path / "out" / "results.parquet").exists()


def test_the_target_is_throughput_unless_something_is_to_be_reached() -> None:
    assert Recommendation(cluster(), None, ["synchronous"]).target == "throughput"
    learning = lockstep.load("quickstart", ["stop={epochs: 1, target_accuracy: 0.5}"])
    assert Recommendation(learning, None, ["synchronous"]).target == "time"
    learning = lockstep.load("quickstart", ["stop={epochs: 1, target: {metric: loss, at_most: 0.5}}"])
    assert Recommendation(learning, None, ["synchronous"]).target == "time"
    with pytest.raises(ScenarioError, match=r"stop\.target_accuracy=0\.9"):
        Recommendation(lockstep.load("quickstart"), "time")


def test_a_rate_is_not_taken_over_by_another_optimizer() -> None:
    """The file's is SGD's; DiLoCo's inner optimizer is AdamW, with rates around its own default."""
    plain = scenario(
        strategy={"name": "asynchronous", "learning_rate": 0.2},
        workload={"dataset": "digits", "batch_size": 32},
        stop={"steps": 5, "target_accuracy": 0.5},
    )
    said = space.with_strategy(plain, "diloco").strategy.parameters
    assert "learning_rate" not in said
    assert 0.001 in space.Space(plain, "diloco", "time").knobs[space.RATE]
    named = override(plain, "strategy.optimizer", "sgd")
    assert space.with_strategy(named, "diloco").strategy.parameters["learning_rate"] == 0.2
    assert space.with_strategy(plain, "local-sgd").strategy.parameters["learning_rate"] == 0.2


def test_what_takes_too_long_to_simulate_is_left_out_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As ako among many workers, who all send to all at once; with few workers nobody looks."""
    monkeypatch.setattr(Job, "takes", lambda job: 1000.0 if job.candidate.strategy == "ako" else 0.1)
    many = scenario(cluster__workers=32, workload__parameters=1000)
    for names, workers, left in (((), many, True), (("ako", "gossip"), many, False), ((), cluster(), False)):
        search = Recommendation(workers, None, names, 1)
        search._leave_out_what_takes_too_long()
        assert ("ako" in search.search_.spaces) is not left
        assert search.left_out.get("ako", "").startswith("one simulation of it takes minutes") is left


def test_what_is_missing_for_learning_is_what_is_said() -> None:
    digits, to = {"dataset": "digits"}, {"steps": 3, "target_accuracy": 0.9}
    sizes, learns = cluster(), scenario(workload=digits)
    goal = scenario(workload=digits, stop=to)
    assert to_learn(sizes, "time") == "a workload with a dataset or a task, and a stop.target"
    assert to_learn(learns, "throughput") == "a stop.target, and --target time"
    assert to_learn(learns, "cost") == "a stop.target"
    assert to_learn(goal, "throughput") == "--target time"


@pytest.mark.usefixtures("few")
def test_a_run_that_failed_with_another_seed_is_no_reason_to_end() -> None:
    """As of a user's model that raises something now and then."""
    result = found(cluster(0.02), "asynchronous", budget=1)
    (rows,) = result.finals.values()
    rows[0] = {"status": "failed", "error": "workload.task: my_task:f raised ValueError", "seed": 1}
    assert as_json(result)["ranking"][0]["warnings"] == []
