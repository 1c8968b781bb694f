"""What a simulated run leaves: its result, and what it warns of."""

from typing import TYPE_CHECKING, Any

from lockstep.analysis.result import Result
from lockstep.job.snapshots import assemble
from lockstep.workloads.compute_time import mean_gradient_s

if TYPE_CHECKING:
    from lockstep.simulator.engine import Simulation


def outcome(simulation: "Simulation") -> Result:
    """The result of a run that is over; its parameters are evaluated now, off the clock."""
    recorder, parameters = simulation.recorder, None
    if simulation.race is not None:
        simulation.snapshots[0].finish(simulation.in_memory())
    if (ahead := simulation.ahead) is not None:
        taken = assemble(list(simulation.snapshots.values()), simulation.owners)
        try:
            for (version, time, vector), found in ahead.evaluations(taken, simulation.evaluate):
                recorder.evaluation(time, version, found.loss, found.accuracy, found.metrics)
                parameters = vector.numpy()
        finally:
            ahead.end()
    updated = recorder.last("update")
    folding, now = simulation.folding, simulation.environment.now
    arrays: Any = {
        "records": folding.records(recorder) if folding else recorder.columns(),
        "utilisation": simulation.usage.until(now if updated is None else updated),
    }
    return Result(
        engine="simulator",
        plan=simulation.plan,
        **arrays,
        gradient_s=mean_gradient_s(simulation.scenario, simulation.sizes),
        parameters=parameters,
        warnings=_warnings(simulation, updated is not None),
    )


def _warnings(simulation: "Simulation", updated: bool) -> list[str]:
    warnings, cluster = [*simulation.plan.warnings], simulation.scenario.cluster
    if simulation.owners.in_one_memory:
        if cluster.memory_bandwidth is None:
            warnings.append("cluster.memory_bandwidth is not given: additions take no time, none is lost")
    elif cluster.network.bandwidth is None:
        warnings.append("cluster.network.bandwidth is not given: messages take no time to transmit")
    if cluster.network.server_bandwidth is not None and cluster.servers.colocated:
        warnings.append("cluster.network.server_bandwidth means nothing to co-located servers: ignored")
    if not updated:
        warnings.append("the run stopped before the first update")
    return warnings
