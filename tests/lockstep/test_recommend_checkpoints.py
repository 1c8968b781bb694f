"""How often to write checkpoints: against the closed form's twin in `verify`, and a simulation."""

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
        {"cluster": {"faults": [{"worker": 1, "at": "3 s", "crash": True, "back_after": "1 s"}]}},
        {"cluster": {"faults": [{"mtbf": "400 s"}]}},
    ],
)
def test_no_advice_where_nobody_fails_again_and_again(more: dict[str, Any]) -> None:
    assert advise(scenario(**more)) is None


def test_a_recommendation_says_it() -> None:
    found = Recommendation(scenario(stop={"time": "100 s"}), strategies=["all-reduce"]).run(1)
    advice = advise(scenario())
    assert advice is not None
    said = as_json(found)
    assert said["checkpoints"]["updates"] == advice.updates
    assert f"Checkpoint every {advice.updates} updates" in said["answer"]
    (first,) = [each for each in said["ranking"] if each["as_in_the_file"]]
    assert first["mean"] < first["throughput"]  # goodput
