"""The way from now to the ideal: against closed forms, in the command, in the report."""

import json
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.analysis import plots
from lockstep.analysis.plots.series import Unfit
from lockstep.analysis.report import pictures
from lockstep.analysis.what_if import Step, WhatIf
from lockstep.ideal import ladder
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import scenario

COMPUTE, MESSAGE, LATENCY, APPLY = 0.01, 0.002, 0.003, 0.004  # s


def star(**changes: Any) -> dict[str, Any]:
    """Four workers and a server: a round is a gradient, four pushes, an update and four pulls."""
    network = {"bandwidth": f"{4000 / MESSAGE} B/s", "latency": f"{LATENCY} s"}
    its = {"cluster__network": network, "cluster__apply_overhead": f"{APPLY} s", "strategy": "synchronous"}
    return its | {"stop": {"steps": 400}} | changes


def test_the_ideal_pays_for_nothing_and_workers_join_it_by_plan() -> None:
    joins = [{"workers": {"add": 2}, "at": "10 ms"}]
    found = lockstep.what_if(scenario(**star(cluster__exchange_overhead="5 ms", cluster__faults=joins)))
    seconds = {step.change: step.seconds for step in found.steps}
    assert "no faults" not in seconds
    assert seconds["ideal"] == pytest.approx(COMPUTE * 1e6 / (6 * 32), rel=0.01)


def test_each_change_takes_away_what_it_should_of_a_round() -> None:
    slow = [{"worker": 1, "slowdown": 3}]
    found = lockstep.what_if(scenario(**star(cluster__stragglers=slow)))
    assert found.metric == "million_s"
    around = 2 * LATENCY + APPLY
    rounds = {
        "now": 3 * COMPUTE + MESSAGE + 4 * MESSAGE + around,  # the straggler pushes alone
        "2× bandwidth": 3 * COMPUTE + 2.5 * MESSAGE + around,
        "no stragglers": COMPUTE + 8 * MESSAGE / 2 + around,
        "2× servers": COMPUTE + 8 * MESSAGE / 4 + around,
        "ideal": COMPUTE,
    }
    million = {change: seconds * 1e6 / (4 * 32) for change, seconds in rounds.items()}
    # a run ends with a push: a pull of 400 is missing
    assert {step.change: step.seconds for step in found.steps} == pytest.approx(million, rel=2e-3)
    changes = [more for _, more in found.changes if more is not None]
    first, last = found.steps[0].seconds, found.steps[-1].seconds
    assert first is not None
    assert first + sum(changes) == pytest.approx(last, rel=1e-12)


def test_what_means_nothing_is_not_tried() -> None:
    assert [*ladder(scenario(strategy="all-reduce"))] == ["now", "ideal"]
    network = {"bandwidth": "1 MB/s"}
    assert [*ladder(scenario(cluster__network=network))] == ["now", "2× bandwidth", "2× servers", "ideal"]


def test_the_ideal_has_the_mean_of_all_distributions_and_no_faults() -> None:
    config = scenario(
        cluster__compute={"time": {"distribution": "lognormal", "mean": "10 ms", "cv": 0.5}},
        cluster__faults=[{"worker": 1, "at": "30 ms", "crash": True, "back_after": "50 ms"}],
        strategy="synchronous",
        stop={"steps": 20},
    )
    tried = ladder(config)
    assert [*tried] == ["now", "no faults", "2× servers", "ideal"]
    run = lockstep.simulate(tried["ideal"])
    assert run.metrics["throughput"] == pytest.approx(4 * 32 / COMPUTE)
    assert run.metrics["efficiency"] == pytest.approx(1)


def test_with_a_target_the_time_to_it_is_what_counts() -> None:
    config = scenario(
        workload={"problem": "quadratic", "batch_size": 8},
        cluster__network={"bandwidth": "10 kB/s"},
        strategy="synchronous",
        stop={"steps": 60, "target": {"metric": "loss", "at_most": 0.2}},
    )
    found = lockstep.what_if(config)
    assert found.metric == "time_to_target_s"
    assert found.steps[0].seconds == lockstep.simulate(config).metrics["time_to_target_s"]
    assert found.steps[-1].change == "ideal"
    assert found.steps[-1].seconds is not None
    assert found.steps[0].seconds is not None
    assert found.steps[-1].seconds < found.steps[0].seconds


def test_a_change_that_loses_the_target_has_no_bar_and_the_sum_goes_on() -> None:
    steps = (Step("now", 100.0), Step("2× bandwidth", None), Step("2× servers", 110.0), Step("ideal", 50.0))
    found = WhatIf("time_to_target_s", steps)
    assert [more for _, more in found.changes] == [None, 10.0, -60.0]
    assert found.rows[1]["time to the target"] == "not reached"
    ax = plots.what_if(found).axes[0]
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([100.0, 10.0, -60.0, 50.0])
    assert "target not reached" in [text.get_text() for text in ax.texts]
    with pytest.raises(Unfit):
        plots.what_if(WhatIf("million_s", (Step("now", None),)))


@pytest.mark.slow
def test_the_command_says_prints_and_draws_it(
    command: Lockstep, sizes_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = fine(command("simulate", sizes_only, "--what-if", "--quiet", "--out", tmp_path / "run"))
    assert "What if?" in shown
    assert (tmp_path / "run" / "what-if.png").is_file()
    found = json.loads(fine(command("simulate", sizes_only, "--what-if", "--json")))
    assert found["what_if"]["steps"][0]["change"] == "now"
    ended = command("simulate", "--replay", tmp_path, "--what-if")
    assert ended.status == 2
    assert "--what-if" in ended.err
    monkeypatch.setattr(pictures, "_KINDS", {})
    page = tmp_path / "page.html"
    fine(command("report", tmp_path / "run", "--out", page))
    assert "From now to the ideal" in page.read_text()
