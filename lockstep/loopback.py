"""What messages between processes of this machine cost: measured in a few seconds, before a prediction."""

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.analysis.result import Result
from lockstep.attempts import undisturbed
from lockstep.executor.launch import RunFailed, execute
from lockstep.job.plan import Plan
from lockstep.machine import cores
from lockstep.scenarios import Scenario

_TURNS = 40  # push-pulls timed of each kind
_LARGE = 1_000_000  # parameters of the large messages, at least: small ones take no measurable time
_LARGEST = 8_000_000  # and at most: on a slow machine a few of them have to fit into the two seconds
_PACE = "10 ms"  # of computing between them, as in a real run: a process that has slept is slower to answer


@dataclass(frozen=True)
class Loopback:
    """What messages between processes of this machine cost."""

    latency: float  # s, one way
    bandwidth: float  # bytes/s
    overhead: float = 0.0  # s of its sender's time that a message takes
    per_message: float = 0.0  # core-seconds that it takes besides, at each end
    per_byte: float = 0.0
    cores: int | None = None  # of this machine; None: not known, and nothing of what messages cost them

    def __str__(self) -> str:
        send, way, speed = self.overhead * 1e6, self.latency * 1e6, self.bandwidth / 1e9
        return f"a message costs {send:.0f} us to send and {way:.0f} us on its way, at {speed:.2f} GB/s"


def measure_loopback(parameters: int) -> Loopback:
    """Time push-pulls of empty and of large messages, and the answers of one server to several workers.

    The server's own work is in the numbers: a push-pull is what a run will really see of it. The answers to
    a barrier's workers leave one after the other, which shows what each costs its sender. What messages take
    of the cores is read off what the processes took of them. Raises RunFailed where other work hides what
    bytes cost.
    """
    large = min(max(parameters, _LARGE), _LARGEST)
    runs = _paced_run(1, 1, "asynchronous"), _paced_run(large, 1, "asynchronous")
    empty, full = _push_pull_s(runs[0], 1), _push_pull_s(runs[1], large)
    if full <= empty:
        raise no_slope("a push-pull", (4, 4 * large), (empty, full))
    several = _paced_run(min(parameters, _LARGEST), workers=3, strategy="synchronous").records
    answers = several.loc[several["kind"] == "parameters", "start"].sort_values().diff()
    gaps = answers[answers < 5e-3]  # longer ones are between two barriers
    overhead = min(empty / 2, float(gaps.median())) if len(gaps) else 0.0
    way = empty / 2 - overhead
    a_message, a_large_one = map(_core_s, runs)
    per_message = min(way, max(0.0, (a_message - overhead) / 2))  # on an idle machine it is there as soon
    per_byte = max(0.0, a_large_one - a_message) / 2 / (4 * large)
    return Loopback(way, 2 * 4 * large / (full - empty), overhead, per_message, per_byte, cores())


def no_slope(what: str, nbytes: Sequence[int], seconds: Sequence[float]) -> RunFailed:
    """The error that the more of two numbers of bytes take no longer (s) than the less."""
    (less, more), (short, long) = nbytes, (1e3 * each for each in seconds)
    return RunFailed(
        f"{what} of {more:,} bytes took {long:.3g} ms, no longer than of {less:,} ({short:.3g} ms): what "
        "else this machine does hides what bytes cost; measure again when it does nothing else"
    )


def _core_s(run: Result) -> float:
    """Core-seconds that a message takes."""
    return (run.core_s or 0.0) / int((run.records["event"] == "message").sum())


def _push_pull_s(run: Result, parameters: int) -> float:
    """From the end of a gradient to the beginning of the next, in seconds."""
    records = run.records
    gradients = records[records["event"] == "gradient"].sort_values("start")
    gaps = (gradients["start"].shift(-1) - gradients["end"]).dropna()
    if gaps.empty:
        raise RunFailed(f"no push-pull of {4 * parameters} bytes in two seconds: the loopback is too slow")
    return float(gaps.median())


def _paced_run(parameters: int, workers: int, strategy: str) -> Result:
    document = {
        "name": "loopback",
        "cluster": {"workers": workers, "compute": {"time": {"distribution": "constant", "value": _PACE}}},
        "workload": {"parameters": parameters},
        "strategy": strategy,
        "stop": {"steps": _TURNS, "time": "2 s"},
    }
    plan = Plan.of(Scenario.model_validate(document))
    return undisturbed(lambda: execute(plan))
