"""Inputs: the scenario schema, its loader, and the scenarios that ship with the product."""

from scenarios.compute import Compute, Distribution, Empirical
from scenarios.document import ScenarioError
from scenarios.load import dump, load, override, shipped
from scenarios.network import Network
from scenarios.schema import Cluster, Data, Problem, Scenario, Servers, Sizes, Stop, Strategy, Workload
from scenarios.stragglers import Straggler

__all__ = [  # noqa: RUF022  (the front door first)
    "Scenario", "ScenarioError", "load", "dump", "shipped", "override",
    "Cluster", "Compute", "Data", "Distribution", "Empirical", "Network", "Problem", "Servers", "Sizes",
    "Stop", "Straggler", "Strategy", "Workload",
]  # fmt: skip
