"""`lockstep chaos`: whatever befalls a run, it ends, nothing is left of it, and it adds up."""

from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import pytest

import lockstep
from lockstep.scenarios.loading import changing, made
from lockstep.strategies import STRATEGIES
from lockstep.studies.chaos import blows, drawn
from lockstep.studies.chaos.invariants import broken
from tests.support.nightly import drawn as some


def scenario(strategy: Any = "synchronous", **more: Any) -> lockstep.Scenario:
    """Three workers, two servers, 60 updates of 20 ms."""
    document = {
        "name": "chaos",
        "cluster": {
            "workers": 3,
            "servers": 2 if STRATEGIES[strategy].sharded else 1,
            "compute": {"time": {"distribution": "exponential", "mean": "20 ms"}},
            "network": {"bandwidth": "1 Gbit/s", "latency": "100 us"},
        },
        "workload": {"parameters": 1000, "batch_size": 8},
        "strategy": strategy,
        "stop": {"steps": 40},
        **more,
    }
    return made(document)


@pytest.mark.parametrize(
    "strategy", some([name for name in STRATEGIES if name not in ("hogwild", "diloco")], one_in=8)
)
def test_simulated_runs_with_drawn_faults_end_well(strategy: str) -> None:
    found = list(islice(drawn.trials(scenario(strategy), seed=1), 12))
    assert not [trial for trial in found if trial.wrong]
    assert {trial.end for trial in found} <= {"ended", "said"}


def test_a_server_that_goes_back_does_not_leave_the_others_behind() -> None:
    """Found by chaos: the other server had made its last update, and answered nobody any more."""
    crash = {"server": 0, "at": "300 ms", "crash": True, "back_after": "20 ms"}
    one = scenario()
    cluster = one.cluster.model_dump(mode="json", exclude_none=True) | {"faults": [crash], "detect": "50 ms"}
    waits = scenario(cluster=cluster, recovery={"on_failure": "wait"}, stop={"updates": 60})
    result = lockstep.simulate(waits)
    assert not [*broken(result)]
    assert set(result.records.query("event == 'update'").groupby("node")["version"].max()) >= {59}


def test_what_does_not_add_up_is_found() -> None:
    result = lockstep.simulate(scenario())
    assert not [*broken(result)]
    records = result.records.copy()
    assert result.metrics["updates"] == 40
    last = records.index[records["event"] == "update"][-1]
    records.loc[last, "version"] += 7
    records.loc[0, "end"] = records.loc[0, "start"] - 1
    records.loc[len(records)] = records[records["event"] == "gradient"].iloc[-1]
    wrong = [*broken(replace(result, records=records))]
    assert any("one after the other" in each for each in wrong)
    assert any("before they begin" in each for each in wrong)
    assert "1 gradients are there twice" in wrong
    fifth = records[(records["event"] == "gradient") & (records["node"] == 1)].index[4]
    left_out = replace(result, records=result.records.drop(fifth))
    assert "worker 1 goes on with mini-batch 5 after 3" in [*broken(left_out)]
    again = result.records.copy()
    again.loc[fifth, "version"] = 3
    wrong = [*broken(replace(result, records=again))]
    assert any("mini-batches are applied, of" in each for each in wrong)


def test_chaos_from_python() -> None:
    told: list[float] = []
    found = lockstep.chaos(scenario(), simulated=5, seed=1, progress=told.append)
    assert found["runs"] == sum(found["ends"].values()) == 5
    assert found["broken"] == []
    assert told == [0.2, 0.4, 0.6, 0.8, 1.0]


def test_links_are_cut_in_every_second_real_run() -> None:
    unharmed = lockstep.simulate(scenario())
    end = unharmed.span[1]
    found = [blows._links(Random(f"{number}"), unharmed, testbed=False) for number in range(100)]
    assert 30 < sum(map(bool, found)) < 70
    kinds = [key for (item,) in filter(None, found) for key in item if key in ("link", "partition")]
    assert {*kinds} == {"link", "partition"}
    for (item,) in filter(None, found):
        cut = changing(scenario()).changed({"cluster.faults": [item]}).cluster.faults[0]
        assert 0 <= cut.at <= end
    native = lockstep.simulate(changing(scenario("all-reduce")).changed({"strategy.algorithm": "native"}))
    assert not any(blows._links(Random(number), native, testbed=False) for number in range(20))


@pytest.mark.real
@pytest.mark.alone
def test_a_real_run_that_is_struck_ends_well() -> None:
    checkpoints = {"recovery": {"on_failure": "restart", "checkpoint": {"every": "5 updates"}}}
    (trial,) = islice(blows.trials(scenario(stop={"updates": 200}, **checkpoints), seed=3, mtbf_s=1.5), 1)
    assert trial.struck
    assert not trial.wrong


def test_nothing_to_do_is_told() -> None:
    from lockstep.scenarios import ScenarioError

    for asked in ({"simulated": 0}, {"mtbf_s": 0.0}, {"for_s": -1.0}):
        with pytest.raises(ScenarioError, match="give"):
            lockstep.chaos(lockstep.load("sizes-only"), **asked)  # type: ignore[arg-type]
