"""How long a gradient takes: seeded draws that both engines share, so both see the same stragglers."""

import math

import numpy as np
from numpy.typing import NDArray

from lockstep.scenarios import Distribution, Scenario, ScenarioError
from lockstep.scenarios import compute as kinds
from lockstep.scenarios.units import TIME
from lockstep.workloads import seeds
from lockstep.workloads.base import Sizes
from lockstep.workloads.loading_time import LoadingTime
from lockstep.workloads.slowness import Slowness, slowness


def _draws(time: Distribution, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return `count` independent durations in seconds."""
    match time:
        case kinds.Constant():
            return np.full(count, time.value)
        case kinds.Uniform():
            return rng.uniform(time.low, time.high, count)
        case kinds.Exponential():
            return rng.exponential(time.mean, count)
        case kinds.ShiftedExponential():
            return time.shift + rng.exponential(time.mean, count)
        case kinds.LogNormal():
            variance = math.log1p(time.cv**2)  # of the logarithm
            return rng.lognormal(math.log(time.mean) - variance / 2, math.sqrt(variance), count)
        case kinds.Gamma():
            return rng.gamma(time.cv**-2, time.mean * time.cv**2, count)
        case kinds.Pareto():
            least = time.mean * (time.shape - 1) / time.shape
            return least * (1 + rng.pareto(time.shape, count))
        case kinds.Empirical():
            sample = np.array(time.times_s)
            return sample[(rng.random(count) * len(sample)).astype(np.int64)]


class _Draws:
    """Independent draws, one after the other, in seconds."""

    def __init__(self, time: Distribution, rng: np.random.Generator) -> None:
        self._time, self._rng = time, rng
        self._size = 8  # of the next block: it doubles, so short runs of many workers stay cheap
        self._block: list[float] = []

    def __call__(self) -> float:
        if not self._block:
            self._block = _draws(self._time, self._rng, self._size).tolist()[::-1]
            self._size = min(2 * self._size, 1024)
        return self._block.pop()

    def next(self, count: int) -> NDArray[np.float64]:
        """So many of them."""
        blocks, size = [np.array(self._block[::-1])], len(self._block)
        while size < count:
            blocks.append(_draws(self._time, self._rng, self._size))
            size += self._size
            self._size = min(2 * self._size, 1024)
        found = np.concatenate(blocks)
        self._block = found[count:][::-1].tolist()
        return found[:count]


class ComputeTime:
    """The durations of one worker's successive gradients, in seconds.

    A function of the arguments alone: the n-th draw, for a gradient begun at the same instant, is the same in
    every process and in both engines. `slowness` is a straggler's, `loading` that of a worker whose
    mini-batches others read.
    """

    waited = 0.0
    """For its mini-batch, of the last draw; the gradient is computed afterwards."""

    def __init__(
        self,
        time: Distribution,
        seed: int,
        worker: int,
        slowness: Slowness | None = None,
        loading: LoadingTime | None = None,
        life: tuple[int, ...] = (),
        exchange_s: float = 0.0,
    ) -> None:
        """life: which of the worker's, if it is not the first: another one draws other times.

        exchange_s: what each takes besides, because it is exchanged.
        """
        self._exchange = exchange_s
        self._slowness, self._loading = slowness, loading
        self._work = _Draws(time, seeds.generator(seed, "compute", worker, *life))

    @property
    def steady(self) -> bool:
        """Whether a time does not depend on when the gradient is begun."""
        return self._loading is None and (self._slowness is None or self._slowness.steady)

    def draw(self, now: float) -> float:
        """Return the seconds that the worker's next gradient takes, begun at `now` (s since the start)."""
        work = self._work() + self._exchange
        if self._loading is not None:
            self.waited = self._loading.wait(now)
        if self._slowness is not None:
            work = self._slowness.seconds(now + self.waited, work)
        return self.waited + work

    def draws(self, count: int) -> NDArray[np.float64]:
        """Those of so many gradients, where they are `steady`, shape (count,)."""
        if self._slowness is not None:
            return np.array([self.draw(0.0) for _ in range(count)])
        return self._work.next(count) + self._exchange


def compute_times(scenario: Scenario, sizes: Sizes, life: tuple[int, ...] = ()) -> list[ComputeTime]:
    """Return the compute times of each worker, stragglers slowed down; `life`: see `ComputeTime`.

    Raises `ScenarioError` (key ``cluster.compute``) where they are to be measured: only a real run can.
    """
    time, slow, reading = _gradient_time(scenario, sizes), slowness(scenario), _reading(scenario)
    exchange, found = exchange_s(scenario), []
    for worker in range(scenario.cluster.workers):
        loading = None
        if reading is not None:
            draws = _Draws(reading, seeds.generator(scenario.seed, "loading", worker, *life))
            loading = LoadingTime(scenario.workload.readers, draws)
        found.append(ComputeTime(time, scenario.seed, worker, slow.get(worker), loading, life, exchange))
    return found


def all_alike(scenario: Scenario, sizes: Sizes) -> bool:
    """Whether all gradients take equally long, on every worker."""
    constant = isinstance(_gradient_time(scenario, sizes), kinds.Constant)
    return constant and not slowness(scenario) and _reading(scenario) is None


def mean_gradient_s(scenario: Scenario, sizes: Sizes) -> float:
    """Return the mean seconds of a gradient on a worker of speed 1 alone; errors as `compute_times`.

    With loaders that are slower than gradients it is what these take, one after the other.
    """
    reading, work = _reading(scenario), _gradient_time(scenario, sizes).mean_s
    return work if reading is None else max(work, reading.mean_s / scenario.workload.readers)


def exchange_s(scenario: Scenario) -> float:
    """What each gradient takes besides, because replicas exchange theirs; none if there is one."""
    return scenario.cluster.exchange_overhead if scenario.replicas > 1 else 0.0


def _reading(scenario: Scenario) -> Distribution | None:
    """How long a loader takes for a mini-batch; None: no time, or there are none."""
    compute = scenario.cluster.compute
    return compute.loading if scenario.workload.readers and not isinstance(compute, str) else None


def _gradient_time(scenario: Scenario, sizes: Sizes) -> Distribution:
    compute = scenario.cluster.compute
    if isinstance(compute, str):
        problem = "measured times exist only in a real run; give time or peak"
        problem += ", or a cluster.profile in its place, which lockstep calibrate makes"
        raise ScenarioError(problem, key="cluster.compute")
    if compute.time is not None:
        return compute.time
    if sizes.flops is None or compute.peak is None:
        raise ScenarioError("peak needs the work per sample; give workload.flops", key="cluster.compute.peak")
    seconds = sizes.flops / (compute.peak * compute.efficiency)
    if not TIME.admits(seconds):
        problem = (
            f"a gradient of {sizes.flops:g} FLOP at {compute.peak:g} FLOP/s × {compute.efficiency:g} takes "
            f"{seconds:g} s; must be from {TIME.least} to {TIME.most}"
        )
        raise ScenarioError(problem, key="cluster.compute.peak")
    return kinds.Constant.model_construct(distribution="constant", value=seconds)
