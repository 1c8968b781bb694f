"""What stands beside scenarios in the library is not taken for one."""

import pytest

import lockstep
from lockstep.scenarios import ScenarioError


@pytest.mark.parametrize(
    ("name", "section"), [("ten-gigabit", "cluster"), ("resnet-50", "workload"), ("gpt-2", "workload")]
)
def test_the_name_of_a_cluster_or_a_workload_is_answered_with_how_to_use_it(name: str, section: str) -> None:
    with pytest.raises(
        ScenarioError, match=rf"a shipped {section} is not a scenario.*--set {section}={name}"
    ):
        lockstep.load(name)


def test_only_scenarios_of_a_similar_name_are_proposed() -> None:
    with pytest.raises(ScenarioError, match=r"shipped scenarios: resnet-50-ten-gigabit$"):
        lockstep.load("resnet50-ten-gigabit")
