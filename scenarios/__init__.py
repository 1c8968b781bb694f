"""Inputs: the scenario schema, its loader, and the scenarios that ship with the product."""

from scenarios.compute import Compute, Distribution, Empirical
from scenarios.document import ScenarioError
from scenarios.library import shelf
from scenarios.load import TAKEN_OVER, dump, load, override, points, shipped
from scenarios.machine import CodecCost, Machine
from scenarios.network import Background, IntraHost, Network, Varying
from scenarios.profile import Profile, profiles
from scenarios.schema import Cluster, Scenario, Servers, Stop, Strategy
from scenarios.stragglers import Straggler
from scenarios.sweep import seeds
from scenarios.topology import FatTree, Racks, Sites, Star
from scenarios.workload import Data, Problem, Sizes, Workload

__all__ = [  # noqa: RUF022  (the front door first)
    "Scenario", "ScenarioError", "load", "dump", "shipped", "override", "points", "seeds",
    "Background", "Cluster", "CodecCost", "Compute", "Data", "Distribution", "Empirical", "FatTree",
    "IntraHost", "Machine", "Network", "Problem", "Profile", "Racks", "Servers", "Sites", "Sizes", "Star",
    "Stop", "Straggler", "Strategy", "TAKEN_OVER", "Varying", "Workload", "profiles", "shelf",
]  # fmt: skip
