"""Inputs: the scenario schema, its loader, and the scenarios that ship with the product.

What reads a scenario loads when it is first asked for: those who only list what there is do without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lockstep.scenarios.problem import ScenarioError
from lockstep.scenarios.shelves import profiles, shelf, shipped

if TYPE_CHECKING:
    from lockstep.scenarios.compute import Compute, Distribution, Empirical
    from lockstep.scenarios.loading import TAKEN_OVER, changing, dump, load, override, placing, points, value
    from lockstep.scenarios.machine import CodecCost, Machine
    from lockstep.scenarios.network import Background, IntraHost, Network, Varying
    from lockstep.scenarios.profile import Profile
    from lockstep.scenarios.schema import Cluster, Scenario, Stop, Strategy
    from lockstep.scenarios.servers import Servers
    from lockstep.scenarios.stragglers import Straggler
    from lockstep.scenarios.sweep import seeds
    from lockstep.scenarios.topology import FatTree, Racks, Sites, Star
    from lockstep.scenarios.workload import Data, Problem, Sizes, Workload

__all__ = [  # noqa: RUF022  (the front door first)
    "Scenario", "ScenarioError", "load", "dump", "shipped", "override", "points", "seeds",
    "changing", "placing", "value",
    "Background", "Cluster", "CodecCost", "Compute", "Data", "Distribution", "Empirical", "FatTree",
    "IntraHost", "Machine", "Network", "Problem", "Profile", "Racks", "Servers", "Sites", "Sizes", "Star",
    "Stop", "Straggler", "Strategy", "TAKEN_OVER", "Varying", "Workload", "profiles", "shelf",
]  # fmt: skip

_ROOMS = (
    *("loading", "schema", "compute", "machine", "network"),
    *("profile", "servers", "stragglers", "sweep", "topology", "workload"),
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for room in _ROOMS:
            if hasattr(module := import_module(f"lockstep.scenarios.{room}"), name):
                return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
