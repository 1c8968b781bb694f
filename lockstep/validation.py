"""Predicted against measured: the same scenario in both engines, on the cluster the real run really has."""

from typing import Any

import pandas as pd

from lockstep import scenarios
from lockstep.analysis.result import Result
from lockstep.calibration.compute import Gradient, a_few
from lockstep.executor.fabric import fabric
from lockstep.executor.shaping import DATA, FRAME, LINE_RATE, QUEUE, bucket, trains
from lockstep.loopback import Loopback
from lockstep.scenarios import Cluster, IntraHost, Network, Scenario
from lockstep.scenarios.network import Burst, Processing
from lockstep.workloads import sizes
from lockstep.workloads.compute_time import compute_times

_DRAWS = 100  # of each worker's times


def parameters(scenario: Scenario) -> int:
    """How many parameters the scenario's workload has."""
    return sizes(scenario.workload).parameters


def on_loopback(scenario: Scenario, loopback: Loopback) -> Scenario:
    """The scenario on the cluster of a real run here: the loopback, and this machine's compute times.

    All processes are on this machine's cores, if the loopback knows them: their messages, and gradients that
    are computed on them. A model that is split is not timed for that: its passes are only waited for.
    """
    whole = loopback.cores is not None and scenario.parallelism is None
    gradient = _own_gradient(scenario) if whole or scenario.cluster.compute == "measured" else None
    processing = None
    if loopback.cores is not None:
        processing = Processing.model_construct(
            per_message=loopback.per_message,
            per_byte=loopback.per_byte,
            cores=loopback.cores,
            gradient=gradient.seconds if whole and gradient and gradient.device == "cpu" else 0.0,
        )
    network = Network.model_construct(
        bandwidth=loopback.bandwidth,
        latency=loopback.latency,
        message_overhead=loopback.overhead,
        processing=processing,
        intra_host=IntraHost.model_construct(bandwidth=loopback.bandwidth, latency=loopback.latency),
        topology=scenario.cluster.network.topology.unlimited(),  # who shares a rack may share its slowness
    )
    return _with_network(scenario, network, gradient)


def overruns_expected(there: Scenario) -> bool:
    """Whether gradients will take longer than their emulated time, with nobody else on the machine.

    They will, if its cores take longer for those of all workers than the shortest of the first draws. A
    prediction for `there` knows of that.
    """
    costs = there.cluster.network.processing
    if costs is None or costs.cores is None or not costs.gradient:
        return False
    times = compute_times(there, sizes(there.workload))
    shortest = min(time.draw(0.0) for time in times for _ in range(_DRAWS))
    return costs.gradient * max(1.0, len(times) / costs.cores) > shortest


def on_testbed(scenario: Scenario) -> Scenario:
    """The scenario on the cluster of a real run on a testbed: its own network, this machine's compute times.

    If the scenario leaves `goodput` at 1, it becomes the share of data in a frame; a `burst` that it does not
    give becomes what the testbed's token buckets let through early, a `queue` what waits in its switches. Its
    cards are fair, and so without `tcp`.
    """
    cluster, network = scenario.cluster, scenario.cluster.network
    changes: dict[str, Any] = {"tcp": None}
    if network.goodput == 1:
        changes["goodput"] = DATA / FRAME
    if network.burst is None and network.bandwidth is not None:
        cards = [
            network.bandwidth,
            network.server_bandwidth or 0.0,
            *(card.bandwidth for card in network.cards),
        ]
        line_rate = max(LINE_RATE, *cards)
        whole = Burst.model_construct(size=bucket(network.bandwidth), line_rate=line_rate)
        changes["burst"] = whole.model_copy(update=trains(_slowest(cluster)))
    if not network.queue:
        changes["queue"] = QUEUE
    gradient = _own_gradient(scenario) if cluster.compute == "measured" else None
    return _with_network(scenario, network.model_copy(update=changes), gradient)


def described(cluster: Cluster) -> str:
    """A scenario's network as `on_testbed` takes it, in words."""
    network, added = cluster.network, []
    if network.goodput == 1:
        added.append(f"a goodput of {DATA / FRAME:.3f}: {DATA} of {FRAME} bytes are data")
    if network.burst is None and network.bandwidth is not None:
        size, whole = bucket(network.bandwidth), trains(_slowest(cluster))["train"]
        sizes = f"a burst of {size / 1000:.1f} kB and trains of {whole / 1000:.1f} kB"
        added.append(f"{sizes}: the testbed's token buckets")
    if not network.queue:
        added.append(f"{QUEUE / 1000:.0f} kB of each message in the switches' queues")
    if network.tcp is not None:
        added.append("the testbed's fair cards instead of tcp")
    return f"the scenario's network{', with ' if added else ''}{'; and '.join(added)}"


def _slowest(cluster: Cluster) -> float:
    """The least rate of the testbed's cables, bytes/s, which are not all unlimited."""
    rate = fabric(cluster, cluster.hosts + cluster.servers.hosts).slowest
    assert rate is not None
    return rate


def _own_gradient(scenario: Scenario) -> Gradient | None:
    """How long this machine takes for a gradient; None if nothing is computed in a real run."""
    return a_few(scenario.workload, scenario.cluster.device) if scenario.workload.learns else None


def _with_network(scenario: Scenario, network: Network, gradient: Gradient | None) -> Scenario:
    changes: dict[str, Any] = {"network": network}
    if scenario.cluster.compute == "measured" and gradient is not None:
        time = {"distribution": "constant", "value": f"{gradient.seconds!r} s"}
        compute = {"time": time, "backward": gradient.backward}
        if gradient.reading is not None:
            compute["loading"] = time | {"value": f"{gradient.reading!r} s"}
        changes["compute"] = scenarios.Compute.model_validate(compute)
    cluster = scenario.cluster.model_copy(update=changes)
    return scenario.model_copy(update={"cluster": cluster})


def compare(predicted: Result, measured: Result) -> dict[str, Any]:
    """What `validate --json` prints: both sets of metrics, and the prediction's errors.

    Errors are relative to the measurement and signed (positive: predicted too high); `staleness_ks` is the
    Kolmogorov–Smirnov distance of the two staleness distributions.
    """
    a, b = predicted.metrics, measured.metrics
    keys = ("throughput", "duration_s", "updates_per_s", "speedup", "loss", "time_to_target_s")
    error = {key: relative_error(a[key], b[key]) for key in keys}
    error["staleness_mean"] = relative_error(a["staleness"]["mean"], b["staleness"]["mean"])
    error["staleness_ks"] = ks_distance(a["staleness"]["histogram"], b["staleness"]["histogram"])
    return {"predicted": a, "measured": b, "error": error}


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """(predicted − measured) / |measured|; 0 when both are 0, None where it has no meaning."""
    if predicted is None or measured is None:
        return None
    if measured == 0:
        return 0.0 if predicted == 0 else None
    return (predicted - measured) / abs(measured)


def ks_distance(a: dict[str, int], b: dict[str, int]) -> float | None:
    """The largest difference between two cumulative distributions, given as histograms."""
    if not a or not b:
        return None
    table = pd.DataFrame({"a": a, "b": b}).fillna(0)
    table = table.set_axis(table.index.astype(int)).sort_index()
    cumulative = (table / table.sum()).cumsum()
    return float((cumulative["a"] - cumulative["b"]).abs().max())
