"""Predicted against measured: the same scenario in both engines, on the cluster the real run really has."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from lockstep import scenarios
from lockstep.analysis.result import Result
from lockstep.executor.fabric import fabric
from lockstep.executor.launch import RunFailed, execute
from lockstep.executor.shaping import DATA, FRAME, QUEUE, bucket, trains
from lockstep.job.plan import Plan
from lockstep.scenarios import Cluster, IntraHost, Network, Scenario
from lockstep.scenarios.network import Burst
from lockstep.workloads import build, deterministic_threads, sizes

_TURNS = 40  # push-pulls timed of each kind
_LARGE = 1_000_000  # parameters of the large messages, at least: small ones take no measurable time
_LARGEST = 8_000_000  # and at most: on a slow machine a few of them have to fit into the two seconds
LINE_RATE = 1.25e9  # bytes/s of a card that is not shaped: of no consequence where buckets are small
_PACE = "10 ms"  # of computing between them, as in a real run: a process that has slept is slower to answer


@dataclass(frozen=True)
class Loopback:
    """What messages between processes of this machine cost."""

    latency: float  # s, one way
    bandwidth: float  # bytes/s
    overhead: float = 0.0  # s of its sender's time that a message takes

    def __str__(self) -> str:
        send, way, speed = self.overhead * 1e6, self.latency * 1e6, self.bandwidth / 1e9
        return f"a message costs {send:.0f} us to send and {way:.0f} us on its way, at {speed:.2f} GB/s"


def measure_loopback(parameters: int) -> Loopback:
    """Time push-pulls of empty and of large messages, and the answers of one server to several workers.

    The server's own work is in the numbers: a push-pull is what a run will really see of it. The answers to
    a barrier's workers leave one after the other, which shows what each costs its sender. Raises RunFailed
    where other work hides what bytes cost.
    """
    large = min(max(parameters, _LARGE), _LARGEST)
    empty, full = _push_pull_s(1), _push_pull_s(large)
    if full <= empty:
        raise no_slope("a push-pull", (4, 4 * large), (empty, full))
    several = _paced_run(min(parameters, _LARGEST), workers=3, strategy="synchronous")
    answers = several.loc[several["kind"] == "parameters", "start"].sort_values().diff()
    gaps = answers[answers < 5e-3]  # longer ones are between two barriers
    overhead = min(empty / 2, float(gaps.median())) if len(gaps) else 0.0
    return Loopback(empty / 2 - overhead, 2 * 4 * large / (full - empty), overhead)


def no_slope(what: str, nbytes: Sequence[int], seconds: Sequence[float]) -> RunFailed:
    """The error that the more of two numbers of bytes take no longer (s) than the less."""
    (less, more), (short, long) = nbytes, (1e3 * each for each in seconds)
    return RunFailed(
        f"{what} of {more:,} bytes took {long:.3g} ms, no longer than of {less:,} ({short:.3g} ms): what "
        "else this machine does hides what bytes cost; measure again when it does nothing else"
    )


def _push_pull_s(parameters: int) -> float:
    """From the end of a gradient to the beginning of the next, in seconds."""
    records = _paced_run(parameters, workers=1, strategy="asynchronous")
    gradients = records[records["event"] == "gradient"].sort_values("start")
    gaps = (gradients["start"].shift(-1) - gradients["end"]).dropna()
    if gaps.empty:
        raise RunFailed(f"no push-pull of {4 * parameters} bytes in two seconds: the loopback is too slow")
    return float(gaps.median())


def _paced_run(parameters: int, workers: int, strategy: str) -> pd.DataFrame:
    document = {
        "name": "loopback",
        "cluster": {"workers": workers, "compute": {"time": {"distribution": "constant", "value": _PACE}}},
        "workload": {"parameters": parameters},
        "strategy": strategy,
        "stop": {"steps": _TURNS, "time": "2 s"},
    }
    return execute(Plan.of(Scenario.model_validate(document))).records


def parameters(scenario: Scenario) -> int:
    """How many parameters the scenario's workload has."""
    return sizes(scenario.workload).parameters


def on_loopback(scenario: Scenario, loopback: Loopback) -> Scenario:
    """The scenario on the cluster of a real run here: the loopback, and this machine's compute times."""
    network = Network.model_construct(
        bandwidth=loopback.bandwidth,
        latency=loopback.latency,
        message_overhead=loopback.overhead,
        intra_host=IntraHost.model_construct(bandwidth=loopback.bandwidth, latency=loopback.latency),
        topology=scenario.cluster.network.topology.unlimited(),  # who shares a rack may share its slowness
    )
    return _with_network(scenario, network)


def on_testbed(scenario: Scenario) -> Scenario:
    """The scenario on the cluster of a real run on a testbed: its own network, this machine's compute times.

    If the scenario leaves `goodput` at 1, it becomes the share of data in a frame; a `burst` that it does not
    give becomes what the testbed's token buckets let through early, a `queue` what waits in its switches.
    """
    cluster, network = scenario.cluster, scenario.cluster.network
    changes: dict[str, Any] = {}
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
    return _with_network(scenario, network.model_copy(update=changes))


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
    return f"the scenario's network{', with ' if added else ''}{'; and '.join(added)}"


def _slowest(cluster: Cluster) -> float:
    """The least rate of the testbed's cables, bytes/s, which are not all unlimited."""
    rate = fabric(cluster, cluster.hosts + cluster.servers.hosts).slowest
    assert rate is not None
    return rate


def _with_network(scenario: Scenario, network: Network) -> Scenario:
    changes: dict[str, Any] = {"network": network}
    if scenario.cluster.compute == "measured":
        changes["compute"] = _measured_compute(scenario)
    cluster = scenario.cluster.model_copy(update=changes)
    return scenario.model_copy(update={"cluster": cluster})


def _measured_compute(scenario: Scenario) -> scenarios.Compute:
    """The time of this machine's gradients, alone on it, and their backward pass's share: medians."""
    from time import monotonic

    times, forward = [], []
    with deterministic_threads():
        learner = build(scenario.workload, scenario.replicas, scenario.seed)
        parameters = learner.initial()
        for step in range(12):
            start, told = monotonic(), list[float]()
            learner.gradient(parameters, 0, step, lambda *_, told=told: told.append(monotonic()))
            times.append(monotonic() - start)
            # until the last parameters' gradient is there
            forward.append(told[0] - start if told else times[-1])
    whole = median(times[2:])
    time = {"distribution": "constant", "value": f"{whole!r} s"}
    backward = min(0.99, max(0.0, 1 - median(forward[2:]) / whole))
    return scenarios.Compute.model_validate({"time": time, "backward": backward})


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
