"""How often to write checkpoints: against the closed form's twin in `verify`, and a simulation."""

from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.recommendation import Recommendation
from lockstep.recommendation.checkpoints import advise
from lockstep.recommendation.show import as_json
from lockstep.scenarios.loading import made
from lockstep.studies.verification.failures import seconds_a_period


def scenario(every: int = 40, **more: Any) -> lockstep.Scenario:
    """Four workers, steps of 1 s, one failure in 100 s; a checkpoint takes 2 s, and 0.5 s to read."""
    return made(
        {
            "name": "spot",
            "cluster": {
                "workers": 4,
                "price": "1 USD/h",
                "compute": {"time": {"distribution": "constant", "value": "1 s"}},
                "storage": {"write": "2 kB/s", "read": "8 kB/s"},
                "detect": "1 s",
                "faults": [{"mtbf": "400 s", "back_after": "5 s"}],
                **more.pop("cluster", {}),
            },
            "workload": {"parameters": 1000, "batch_size": 1},
            "strategy": "all-reduce",
            "stop": {"time": "10000 s"},
            "recovery": {"checkpoint": {"every": f"{every} updates"}, "on_failure": "restart"},
            **more,
        }
    )


def test_the_period_that_loses_least() -> None:
    advice = advise(scenario())
    assert advice is not None
    assert advice.mtbf_s == pytest.approx(100.0)
    lost = {every: 1 - every / seconds_a_period(every, 2.0, 100.0, 5.5) for every in range(1, 100)}
    assert advice.updates == min(lost, key=lost.__getitem__)
    assert advice.lost == pytest.approx(lost[advice.updates])
    assert (advice.given, advice.lost_as_given) == (40, pytest.approx(lost[40]))


def test_a_simulation_loses_as_much() -> None:
    """Of 50 failures: their cost has a standard error of a seventh, and this is two of them."""
    advice = advise(scenario())
    assert advice is not None
    more = {"strategy": "synchronous", "stop": {"time": "5000 s"}}
    found = lockstep.simulate(scenario(advice.updates, **more)).metrics
    assert 1 - found["goodput"] / 4.0 == pytest.approx(advice.lost, rel=0.28)


@pytest.mark.parametrize(
    "more",
    [
        {"recovery": {"on_failure": "stop"}},
        {"cluster": {"faults": [{"mtbf": "400 s"}]}},  # it does not come back
        {"cluster": {"faults": [{"worker": 1, "at": "3 s", "hang_for": "500 ms"}]}},  # nobody notices
        {"strategy": "asynchronous", "recovery": {"on_failure": "continue"}},  # no worker has parameters
    ],
)
def test_no_advice_where_checkpoints_are_of_no_use(more: dict[str, Any]) -> None:
    assert advise(scenario(**{"stop": {"time": "1000 s"}, **more})) is None


def test_other_faults_are_simulated(tmp_path: Path) -> None:
    """A trace of the same failures as an item's: the same period, but for the steps of the search."""
    lines = [f"{at}, 1, down\n{at + 5}, 1, up" for at in range(100, 2000, 105)]
    (tmp_path / "trace.csv").write_text("\n".join(lines))
    faults = [{"trace": str(tmp_path / "trace.csv")}]
    seldom = {"cluster": {"faults": faults}, "stop": {"time": "2000 s"}}
    advice = advise(scenario(**seldom))
    assert advice is not None
    assert advice.mtbf_s is None
    assert advice.updates in (20, 40)  # 18 were best on average; the file's own is tried, too
    assert advice.lost <= advice.lost_as_given
    assert "with the file's faults the job then loses" in str(advice)
    found = {every: lockstep.simulate(scenario(every, **seldom)).metrics["goodput"] for every in (5, 20, 100)}
    assert max(found, key=found.__getitem__) == 20


def test_a_server_that_goes_back_is_simulated() -> None:
    crash = {"server": 0, "mtbf": "200 s", "back_after": "5 s"}
    more = {"strategy": "asynchronous", "stop": {"time": "2000 s"}}
    advice = advise(scenario(cluster={"faults": [crash]}, recovery={"on_failure": "continue"}, **more))
    assert advice is not None
    assert advice.given is None
    assert 20 <= advice.updates <= 200
    assert advice.lost < advice.lost_as_given


def test_a_recommendation_says_it() -> None:
    found = Recommendation(scenario(stop={"time": "100 s"}), strategies=["all-reduce"]).run(1)
    advice = advise(scenario())
    assert advice is not None
    said = as_json(found)
    assert said["checkpoints"]["updates"] == advice.updates
    assert f"Checkpoint every {advice.updates} updates" in said["answer"]
    (first,) = [each for each in said["ranking"] if each["as_in_the_file"]]
    assert first["mean"] < first["throughput"]  # goodput
