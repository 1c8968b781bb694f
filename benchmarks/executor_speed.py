"""How fast the executor is, as ratios to rivals that run by turns with it: DDP, the shaped link, bare ZeroMQ.

Run: make bench, or python benchmarks/executor_speed.py [PART OF A ROW'S NAME …]. The testbed's rows need
root. Medians of what a step takes, in ms; the ratio is the median of the turns' ratios, with those of the
worst and the best turn beside it. benchmarks/RESULTS.md keeps the last ones.
"""

import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median

import rivals
import torch
import zmq

import lockstep
from lockstep import Result, Scenario, ScenarioError
from lockstep.executor.shaping import DATA, FRAME
from lockstep.executor.testbed import Seat, Testbed
from lockstep.job.plan import Plan

TURNS = 3
LARGE, SMALL = 25_000_000, 64  # bytes
# What both ends of a push-pull do between messages: serialise, look, record, add.
BUSY_S = 50e-6

Turn = Callable[[], tuple[float, float]]  # what a step took: ours, the rival's


def training(model: str, batch: int, buckets: int, steps: int, bandwidth: str | None = None) -> Turn:
    """Two workers, the native all-reduce, measured gradients; and DistributedDataParallel."""
    scenario = described(
        f"workload={{dataset: fake, model: {model}, batch_size: {batch}}}",
        f"strategy={{name: all-reduce, algorithm: native, buckets: {buckets}}}",
        *("cluster.workers=2", "cluster.compute=measured", f"stop={{steps: {steps}}}"),
        bandwidth=bandwidth,
    )

    def turn() -> tuple[float, float]:
        ours = step_s(measured(scenario, bandwidth))
        return ours, rival(scenario, bandwidth, rivals.ddp, scenario, steps)

    return turn


def alone(model: str, batch: int, steps: int) -> Turn:
    """One worker on a GPU; and plain training there in one process."""
    scenario = described(
        f"workload={{dataset: fake, model: {model}, batch_size: {batch}}}",
        "strategy={name: all-reduce, algorithm: native}",
        *("cluster.workers=1", "cluster.compute=measured", f"stop={{steps: {steps}}}"),
    )

    def turn() -> tuple[float, float]:
        if not torch.cuda.is_available():
            raise ScenarioError("no GPU on this machine")
        return step_s(measured(scenario, None)), rival(scenario, None, rivals.plain, scenario, steps)

    return turn


def step_s(result: Result) -> float:
    """The median time from one update to the next; the first steps are slower."""
    records = result.records
    updates = records[(records["event"] == "update") & (records["node"] == 0)]["end"]
    return float(updates.diff().iloc[2:].median())


def pushing(nbytes: int, count: int, bandwidth: str | None = None) -> Scenario:
    """One worker that does nothing but push so many bytes, and pull as many, with one server."""
    return described(
        f"workload={{parameters: {nbytes // 4}}}",
        "cluster.compute={time: {distribution: constant, value: 0 s}}",
        *("cluster.workers=1", "cluster.servers=1", "strategy=asynchronous", f"stop={{steps: {count}}}"),
        bandwidth=bandwidth,
    )


def push_pull(nbytes: int, count: int, whole: bool, busy_s: float = 0) -> Turn:
    """Over the loopback; the rival is ZeroMQ alone, whose ends are busy for so long before they send.

    `whole`: from one push to the next, with the server's addition; else the two messages alone.
    """
    scenario = pushing(nbytes, count)

    def turn() -> tuple[float, float]:
        result = measured(scenario, None)
        ours = cycle_s(result) if whole else messages_s(result)
        return ours, rival(scenario, None, rivals.bare, nbytes, count, busy_s)

    return turn


def cycle_s(result: Result) -> float:
    """The median time from one push to the next, but for the first tenth."""
    pushes = result.records[result.records["kind"] == "push"]["start"].sort_values()
    return float(pushes.diff().iloc[len(pushes) // 10 + 1 :].median())


def messages_s(result: Result) -> float:
    """The median time of a push and of an answer, together, but for the first tenth."""
    total = 0.0
    for kind in ("push", "parameters"):
        found = result.records[result.records["kind"] == kind].sort_values("start")
        total += float((found["end"] - found["start"]).iloc[len(found) // 10 :].median())
    return total


def link(bandwidth: str, count: int) -> Turn:
    """Push and pull of LARGE bytes, with the server's addition, against the goodput of the shaped cable."""
    scenario = pushing(LARGE, count, bandwidth)
    least = 2 * LARGE / (scenario.cluster.network.bandwidth * DATA / FRAME)
    return lambda: (cycle_s(measured(scenario, bandwidth)), least)


def described(*changes: str, bandwidth: str | None = None) -> Scenario:
    network = "{}" if bandwidth is None else f"{{bandwidth: {bandwidth}}}"
    return lockstep.load("quickstart", ["cluster.stragglers=[]", f"cluster.network={network}", *changes])


def measured(scenario: Scenario, bandwidth: str | None) -> Result:
    return lockstep.run(scenario, testbed=bandwidth is not None, attempts=1)


def rival(scenario: Scenario, bandwidth: str | None, program: rivals.Rival, *arguments: object) -> float:
    """What a step of a rival takes whose processes sit where those of the scenario do."""
    hosts = Plan.of(scenario).hosts
    with ExitStack() as stack:
        bed = stack.enter_context(Testbed(scenario.cluster, hosts)) if bandwidth else None
        seats = [bed.seat(rank) if bed else Seat() for rank in range(len(hosts))]
        return rivals.seconds(program, seats, *arguments)


# name: a turn; the bar for the rival's time ÷ ours (of a training: ours ÷ the rival's at most); the bar
ROWS: dict[str, tuple[Turn, bool, float]] = {
    "step: cnn, batch 64, loopback": (training("cnn", 64, 2, 12), True, 1.05),
    "step: mobilenet_v3_small, batch 32, loopback": (training("mobilenet_v3_small", 32, 2, 15), True, 1.05),
    "step: resnet18, batch 16, loopback": (training("resnet18", 16, 8, 12), True, 1.05),
    "step: cnn, batch 64, 100 Mbit/s": (training("cnn", 64, 2, 8, "100 Mbit/s"), True, 1.05),
    "step: mobilenet_v3_small, batch 32, 100 Mbit/s": (
        training("mobilenet_v3_small", 32, 4, 9, "100 Mbit/s"),
        True,
        1.05,
    ),
    "step: resnet18, batch 128, one worker on a GPU": (alone("resnet18", 128, 50), True, 1.05),
    "25 MB, messages, loopback": (push_pull(LARGE, 40, False), False, 0.8),
    "25 MB, with the addition, loopback": (push_pull(LARGE, 40, True), False, 0.8),
    "25 MB, with the addition, 1 Gbit/s": (link("1 Gbit/s", 12), False, 0.9),
    "25 MB, with the addition, 100 Mbit/s": (link("100 Mbit/s", 4), False, 0.9),
    "64 B, messages, loopback": (push_pull(SMALL, 3000, False), False, 0.5),
    "64 B, with the addition, loopback": (push_pull(SMALL, 3000, True), False, 0.5),
    "64 B, with the addition, loopback, busy rival": (
        push_pull(SMALL, 3000, True, busy_s=BUSY_S),
        False,
        0.5,
    ),
}


def main(patterns: Sequence[str]) -> None:
    print(f"{platform.platform()}, Python {platform.python_version()}, torch {torch.__version__}", end=", ")
    print(f"ZeroMQ {zmq.zmq_version()}; the executor's time by its rival's, or for messages the inverse")
    print(f"{'':50} {'ours, ms':>9} {'rival, ms':>10} {'ratio':>6} {'worst':>6} {'best':>6}   bar")
    for name, (turn, most, bar) in ROWS.items():
        if patterns and not any(pattern in name for pattern in patterns):
            continue
        try:
            turns = [turn() for _ in range(TURNS)]
        except ScenarioError as error:
            print(f"{name:50} skipped: {error.problem}")
            continue
        ours, theirs = (1e3 * median(times) for times in zip(*turns, strict=True))
        ratios = sorted((a / b if most else b / a for a, b in turns), reverse=most)
        shown = f"{median(ratios):6.2f} {ratios[0]:6.2f} {ratios[-1]:6.2f}   {'≤' if most else '≥'} {bar}"
        print(f"{name:50} {ours:9.3f} {theirs:10.3f} {shown}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
