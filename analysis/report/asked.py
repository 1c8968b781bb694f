"""What a scenario asks, in words."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.analysis.report.groups import WORK
from lockstep.analysis.report.split import split
from lockstep.analysis.table import keys
from lockstep.analysis.words import aim, count
from lockstep.analysis.written import said, written, yaml
from lockstep.scenarios import Compute, Problem, Scenario, Sizes
from lockstep.scenarios.stragglers import Occasional, Periodic, Persistent, Spells, Straggler
from lockstep.scenarios.workload import Graph, Trained


def asked(
    scenario: Scenario, compared: Mapping[str, Sequence[Any]] | None = None, works: Sequence[str] = ()
) -> dict[str, str]:
    """Cluster, network, compute, workload, split, strategy, end, seeds, a phrase each, if it is there.

    `compared`: the keys that are not the same in all runs, and the values that they have. `works`: what the
    runs work on, in words.
    """
    varied = dict(compared or {})
    if len(works) > 1:  # they are named, and what tells them apart says nothing more
        varied = {key: values for key, values in varied.items() if key not in WORK}
    there = [*varied]
    seeds = varied.pop("seed", [scenario.seed])
    strategies = varied.pop("strategy.name", [])
    clusters, workloads = varied.pop("cluster.preset", []), works if len(works) > 1 else []
    workers = varied.pop("cluster.workers", [scenario.cluster.workers])
    phrases = {
        "Strategies": ", ".join(map(str, strategies)),
        "Strategy": "" if strategies else _strategy(scenario),
        "Clusters": ", ".join(clusters),
        "Cluster": "" if clusters else _cluster(scenario, workers),
        "Network": "" if clusters else network(scenario),
        "Compute": "" if clusters else _compute(scenario),
        "Stragglers": "" if clusters else "; ".join(map(_straggler, scenario.cluster.stragglers)),
        "Workloads": ", ".join(workloads),
        "Workload": "" if workloads else _workload(scenario),
        "Split": split(scenario, there),
        "Ends": " or ".join(_ends(scenario)),
        "Seeds" if len(seeds) > 1 else "Seed": ", ".join(map(str, seeds)),
        "Varied": "; ".join(
            f"{key}: {', '.join(said(value, key) for value in values)}" for key, values in varied.items()
        ),
    }
    return {name: phrase for name, phrase in phrases.items() if phrase}


def _written(section: Any, key: str) -> str:
    return str(written(section, key, exact=False))


def _cluster(scenario: Scenario, workers: Sequence[int]) -> str:
    cluster = scenario.cluster
    *fewer, most = workers
    text = f"{', '.join(map(str, fewer))} or {count(most, 'worker')}" if fewer else count(most, "worker")
    if cluster.workers_per_host > 1:
        text += f", {cluster.workers_per_host} on a host"
    where = " on the workers' hosts" if cluster.servers.colocated else ""
    text += f", {count(cluster.servers.count, 'parameter server')}{where} where the strategy has one"
    hierarchy = cluster.servers.hierarchy
    return f"{text}, below it {count(hierarchy.groups, 'relay')}" if hierarchy else text


def network(scenario: Scenario) -> str:
    """The network in words."""
    network = scenario.cluster.network
    at = "cluster.network"
    if network.bandwidth is None:
        cards = "unlimited bandwidth"
    else:
        cards = f"{_written(network.bandwidth, f'{at}.bandwidth')} per direction and card"
    parts = [cards]
    if network.server_bandwidth is not None:
        parts.append(f"{_written(network.server_bandwidth, f'{at}.server_bandwidth')} at the servers")
    parts.append(f"{_written(network.latency, f'{at}.latency')} latency" if network.latency else "no latency")
    shape = network.topology
    if shape.kind != "star":
        parts.append(f"{shape.kind} ({_below(scenario, f'{at}.topology', 'kind')})")
    for name in ("varying", "background"):
        if items := getattr(network, name):
            parts.append(
                {"varying": "bandwidth varies", "background": "traffic of others"}[name] + f" ({len(items)})"
            )
    return ", ".join(parts)


def _compute(scenario: Scenario) -> str:
    compute = scenario.cluster.compute
    if not isinstance(compute, Compute):
        return "gradients take what they take on the machine (measured)"
    if compute.time is not None:
        law = _below(scenario, "cluster.compute.time", "distribution")
        return f"{compute.time.distribution} time of a gradient: {law}"
    peak = _written(compute.peak, "cluster.compute.peak")
    return f"{peak} peak, {compute.efficiency:.0%} of it reached"


def _straggler(straggler: Straggler) -> str:
    scope = straggler.scope
    who = f"{scope[0]} {scope[1]}" if scope else "every worker"
    at = "cluster.stragglers"
    if isinstance(straggler, Persistent):
        return f"{who} always takes {straggler.slowdown:g} times as long"
    if isinstance(straggler, Occasional):
        return f"{who} takes {straggler.slowdown:g} times as long with probability {straggler.probability:g}"
    if isinstance(straggler, Spells):
        every, last = (_written(s, f"{at}.period") for s in (straggler.spells.every, straggler.spells.last))
        return f"{who} is {straggler.slowdown:g} times slower in spells of {last}, {every} apart on average"
    if isinstance(straggler, Periodic):
        busy, period = (_written(s, f"{at}.period") for s in (straggler.busy, straggler.period))
        return f"{who} is {straggler.slowdown:g} times slower for {busy} of every {period}"
    return f"{who} is slowed by a trace"


def _workload(scenario: Scenario) -> str:
    work = scenario.workload
    batches = f"mini-batches of {work.batch_size:,}"
    if isinstance(work, Sizes):
        flops = f", {work.flops:.3g} FLOP a sample" if work.flops else ""
        return (
            f"{work.parameters:,} parameters ({work.dtype}){flops}, {batches}; sizes only, nothing is learned"
        )
    if isinstance(work, Graph):
        return f"the layers in {Path(work.graph).name}, {batches}; sizes only, nothing is learned"
    learning = "" if work.learns else "; only its sizes, nothing is learned"
    split = "" if work.partition == "iid" else f", dealt out by {_below(scenario, 'workload.partition')}"
    if isinstance(work, Trained):
        return f"{''.join(work.called)}, {batches}{split}{learning}"
    assert isinstance(work, Problem)
    return f"a {work.problem} problem in {work.dimension:,} dimensions, {batches}{split}{learning}"


def _strategy(scenario: Scenario) -> str:
    parameters = _below(scenario, "strategy", "name")
    return scenario.strategy.name + (f" ({parameters})" if parameters else "")


def _ends(scenario: Scenario) -> Iterator[str]:
    stop = scenario.stop
    if stop.target_accuracy is not None:
        yield f"at {100 * stop.target_accuracy:.4g}% accuracy"
    if stop.target is not None:
        yield f"at {aim(stop.target.metric, stop.target.value)}"
    for bound, words in (("epochs", "epochs"), ("steps", "mini-batches a worker"), ("updates", "updates")):
        if (value := getattr(stop, bound)) is not None:
            yield f"after {value:,} {words}"
    if stop.time is not None:
        yield f"after {_written(stop.time, 'stop.time')}"


def _below(scenario: Scenario, section: str, *besides: str) -> str:
    """The keys of a section but for some, and those that are empty: "mean 30 ms, cv 0.2"."""
    found = {
        key.removeprefix(f"{section}."): written(value, key, exact=False)
        for key, value in keys(scenario).items()
        if key.startswith(f"{section}.") and value not in ("[]", "{}", 0.0)
    }
    shown = {
        key.replace("_", " ").replace(".", " "): value for key, value in found.items() if key not in besides
    }
    return ", ".join(f"{key} {yaml(value)}" for key, value in shown.items())
