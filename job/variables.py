"""Where the variables of a model lie in a slice of its parameters: `cluster.servers.placement`."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from lockstep.job.stages import Piece
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.strategies.parts import dealt
from lockstep.workloads.variables import variables


def variables_in(scenario: Scenario, pieces: Sequence[Piece]) -> list[slice] | None:
    """Those of the pieces, end to end, that servers hold whole; None: servers have even shards.

    Of a variable that several devices share, each has its part. Raises ScenarioError where there are fewer
    than servers.
    """
    servers = scenario.cluster.servers
    if servers.placement == "even":
        return None
    bounds = [0, *accumulate(variables(scenario.workload))]
    found, end = [], 0
    for part in (part for piece in pieces for part in piece.parameters):
        inside = [part.start, *(bound for bound in bounds if part.start < bound < part.stop), part.stop]
        found += [slice(end + a - part.start, end + b - part.start) for a, b in pairwise(inside)]
        end += part.stop - part.start
    parts = dealt(found, servers.count, servers.split_above)
    if not all(parts):
        of_each = " of a stage" if scenario.split.pipeline > 1 else ""
        many = f"{parts.index(())}, the number of variables{of_each}"
        problem = f"must be at most {many}, with placement: by-variable; not {servers.count}"
        raise ScenarioError(problem, key="cluster.servers.count")
    return found
