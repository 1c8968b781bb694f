"""Products of a scenario's values that no cluster could have, and changes that no run could follow.

Each value by itself has bounds in scenarios/. What several make together is checked here, before anything is
run: numbers that overflow, or instants that no clock can tell apart, would end in nonsense much later.
"""

from collections.abc import Iterator

from lockstep.analysis.words import number
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.stragglers import Periodic, Spells, Trace
from lockstep.scenarios.units import TIME
from lockstep.workloads import Sizes
from lockstep.workloads.compute_time import exchange_s, mean_gradient_s
from lockstep.workloads.slowness import slowest

CHANGES = 1_000_000
"""How many times something may change during a step of the run: each takes microseconds to follow."""


def check(plan: Plan) -> None:
    """Raise ScenarioError for a gradient, message, slowdown or period that does not go with the rest."""
    scenario, its = plan.scenario, plan.sizes
    slowdown = slowest(scenario)
    measured = scenario.cluster.compute == "measured"
    gradient = 0.0 if measured else (mean_gradient_s(scenario, its) + exchange_s(scenario)) * slowdown
    passes = 3 * plan.micro_batches * plan.chunks if plan.stages else 0  # of a device, at most
    step = gradient + passes * scenario.cluster.pass_overhead + _message_s(scenario, its)
    for key, seconds, changes in changing(scenario):
        if step * changes / seconds > CHANGES:
            raise ScenarioError(
                f"changes {step * changes / seconds:.2g} times while a step of the run is made, which takes "
                f"up to {number(step, 's')}; must leave {number(step / CHANGES, 's')} or more between two "
                f"changes, so that there are at most {CHANGES:,}: what is faster is as good as its mean",
                key=key,
            )


def _message_s(scenario: Scenario, its: Sizes) -> float:
    """The most that the parameters take to everyone, one after another, over the narrowest link, s."""
    cluster, network = scenario.cluster, scenario.cluster.network
    everyone = cluster.workers + cluster.servers.hosts
    overheads = everyone * (network.message_overhead + network.receive_overhead)
    latency = max(network.latency + network.topology.longest, getattr(network.intra_host, "latency", 0.0))
    if not network.given:
        return latency + overheads
    key, rate = min(network.given.items(), key=lambda pair: pair[1])
    seconds, longest = its.nbytes / rate, TIME.bounds[1]
    if seconds > longest:
        raise ScenarioError(
            f"{its.parameters:,} parameters, {its.nbytes:,} bytes, take {seconds:.2g} s at {rate:.3g} B/s of "
            f"data; must be at most {TIME.most}: give bandwidth × goodput of at least "
            f"{its.nbytes / longest:.3g} B/s, or fewer workload.parameters",
            key=f"cluster.network.{key}",
        )
    return latency + overheads + everyone * seconds


def changing(scenario: Scenario) -> Iterator[tuple[str, float, int]]:
    """What changes again and again: its key, and how often in so many seconds."""
    for index, item in enumerate(scenario.cluster.stragglers):
        at = f"cluster.stragglers[{index}]"
        match item:
            case Spells():
                yield f"{at}.spells", (item.spells.every + item.spells.last) / 2, 1
            case Periodic():
                yield f"{at}.period", item.period, 2
            case Trace(repeat=float(repeat)):
                yield f"{at}.repeat", repeat, len(item.steps)
    network = scenario.cluster.network
    for index, entry in enumerate(network.varying):
        if entry.repeat is not None:
            yield f"cluster.network.varying[{index}].repeat", entry.repeat, len(entry.steps)
    for index, flow in enumerate(network.background):
        if flow.on is not None and flow.off is not None:
            yield f"cluster.network.background[{index}].on", (flow.on + flow.off) / 2, flow.flows
