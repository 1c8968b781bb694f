"""The mistakes of other implementations, each against a run of ours that is made again by hand.

Compute times are constant and messages take no time, so it is plain who is next, and a run is a few lines.
Every replay is made right, which must be our run, and as the mistake has it, which must not.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

import lockstep
from lockstep import Result
from lockstep.workloads import build
from tests.support.worlds import learning

SLOWDOWNS = [1.0, 1.3, 1.7]  # of the workers: no two finish at the same instant
STEPS = 7
ETA = 0.1


class Run:
    """A run of ours, and its gradients for a replay in double precision."""

    def __init__(self, workers: int, *, apply_s: float = 0.0, steps: int = STEPS, **strategy: Any) -> None:
        slow = [] if apply_s else [{"worker": w, "slowdown": SLOWDOWNS[w]} for w in range(1, workers)]
        config = learning(
            cluster__workers=workers,
            cluster__stragglers=slow,
            cluster__apply_overhead=f"{apply_s} s",
            strategy={"learning_rate": ETA, **strategy},
            stop={"steps": steps},
        )
        self.result: Result = lockstep.simulate(config)
        self.learner = build(config.workload, workers, config.seed)
        self.start = self.learner.initial().double()
        self.gradient = self.learner.gradient
        self.workers = range(workers)

    @property
    def finished(self) -> list[tuple[int, int]]:
        """Who finishes which mini-batch, in order."""
        order = sorted(((t + 1) * SLOWDOWNS[i], i, t) for i in self.workers for t in range(STEPS))
        return [(i, t) for _, i, t in order]

    def is_(self, right: Tensor, *mistakes: Tensor) -> None:
        """The run's end is the right one, and none of the mistaken ones."""
        found = torch.from_numpy(self.result.parameters).double()
        assert torch.allclose(found, right, rtol=1e-5, atol=1e-6)
        for mistake in mistakes:
            assert (found - mistake).abs().max() > 1e-3


def rounds(period: int) -> list[range]:
    return [range(first, min(first + period, STEPS)) for first in range(0, STEPS, period)]


# Elastic averaging. dist-keras reverses the sign of EAMSGD's look-ahead, applies the rate twice, and takes
# the elastic step before the gradient; the authors (mpiT) take the gradient at x before it is moved.

RHO, DELTA, WINDOW = 2.0, 0.8, 2
ALPHA = ETA * RHO


def elastic(run: Run, delta: float, sign: int = 1, rate: float = ETA, moved_first: bool = False) -> Tensor:
    """The centre, when each worker meets it by itself; `delta` is the momentum."""
    centre = run.start
    x, v, back = ([vector] * len(run.workers) for vector in (centre, 0 * centre, 0 * centre))
    for i, t in run.finished:
        if moved_first:
            x[i], back[i] = x[i] - back[i], 0 * centre
        v[i] = delta * v[i]
        x[i] = x[i] + sign * v[i]
        g = run.gradient(x[i], i, t)
        x[i], v[i] = x[i] - rate * g - back[i], v[i] - rate * g
        back[i] = 0 * centre
        if (t + 1) % WINDOW == 0 or t + 1 == STEPS:
            back[i] = ALPHA * (x[i] - centre)
            centre = centre + back[i]
    return centre


@pytest.mark.parametrize("workers", [1, 3])
def test_eamsgd_looks_ahead_and_applies_the_rate_once(workers: int) -> None:
    run = Run(workers, name="eamsgd", communication_window=WINDOW, rho=RHO, momentum=DELTA)
    run.is_(
        elastic(run, DELTA),
        elastic(run, DELTA, sign=-1),
        elastic(run, DELTA, rate=ETA**2),
        elastic(run, DELTA, moved_first=True),
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_aeasgd_takes_the_gradient_before_it_is_pulled_back(workers: int) -> None:
    run = Run(workers, name="aeasgd", communication_window=WINDOW, rho=RHO)
    run.is_(elastic(run, 0.0), elastic(run, 0.0, moved_first=True))


def elastic_together(run: Run, moved_first: bool = False, share: float = 1.0) -> Tensor:
    centre = run.start
    x = [centre for _ in run.workers]
    for t in range(STEPS):
        back = [0 * centre for _ in run.workers]
        if t > 0 and t % WINDOW == 0:
            back = [ALPHA * (x[i] - centre) for i in run.workers]
        at = [x[i] - back[i] if moved_first else x[i] for i in run.workers]
        x = [x[i] - ETA * run.gradient(at[i], i, t) - back[i] for i in run.workers]
        centre = centre + share * sum(back)
    return centre + share * sum(ALPHA * (x[i] - centre) for i in run.workers)


@pytest.mark.parametrize("workers", [1, 3])
def test_easgd_moves_the_centre_by_the_sum_of_what_pulls(workers: int) -> None:
    run = Run(workers, name="easgd", communication_window=WINDOW, rho=RHO)
    mistakes = [elastic_together(run, moved_first=True)]
    if workers > 1:
        mistakes.append(elastic_together(run, share=1 / workers))  # the mean: β = α instead of nα
    run.is_(elastic_together(run), *mistakes)


# Delay compensation. MXNet keeps one previous weight, that before the last update, not one of each worker.


def compensated(run: Run, strength: float, backups: str) -> Tensor:
    x = previous = run.start
    pulled = [x for _ in run.workers]
    for i, t in run.finished:
        g = run.gradient(pulled[i], i, t)
        backup = {"one each": pulled[i], "one": previous}[backups]
        previous, x = x, x - ETA * (g + strength * g * g * (x - backup))
        pulled[i] = x
    return x


def test_dc_asgd_has_a_backup_for_each_worker() -> None:
    run = Run(3, name="dc-asgd", compensation=0.5)
    run.is_(compensated(run, 0.5, "one each"), compensated(run, 0.5, "one"), compensated(run, 0.0, "one"))


# DynSGD. dist-keras reads the staleness outside the lock: before the updates that are under way are applied.


def test_dynsgd_reads_the_staleness_when_it_applies() -> None:
    """Three pushes arrive at once, at 12 ms, and each takes 2 ms: the second finds the first applied.

    A gradient takes 10 ms and the worker's own step 2. Answers at 14, 16 and 18 ms, so the next pushes come
    at 26, 28 and 30 ms, each two updates late.
    """
    run = Run(3, name="dynsgd", communication_window=1, apply_s=0.002, steps=2)

    def replay(staleness: list[int]) -> Tensor:
        x, pulled = run.start, [run.start for _ in run.workers]
        for number, late in enumerate(staleness):
            t, i = divmod(number, 3)
            x = x - ETA * run.gradient(pulled[i], i, t) / (late + 1)
            pulled[i] = x
        return x

    updates = run.result.records.query("event == 'update'").sort_values("version")
    assert updates["end"].tolist() == pytest.approx([0.014, 0.016, 0.018, 0.028, 0.030, 0.032])
    assert updates["staleness"].tolist() == [0, 1, 2, 2, 2, 2]
    run.is_(replay([0, 1, 2, 2, 2, 2]), replay([0, 0, 0, 2, 2, 2]))


# Staleness-aware, with an optimizer that divides by the size of gradients: what is smaller is the rate, so
# the size is that of the gradient as it came.


def rescaled(run: Run, divided_away: bool = False, asynchronous: bool = False) -> Tensor:
    """RMSProp at the server, each push at the rate η/τ."""
    x, h = run.start, 0 * run.start
    pulled, version = [x for _ in run.workers], [0 for _ in run.workers]
    for number, (i, t) in enumerate(run.finished):
        gradient = run.gradient(pulled[i], i, t)
        scale = 1 if asynchronous else 1 / max(number - version[i], 1)
        size = scale * gradient if divided_away else gradient
        h = 0.99 * h + 0.01 * size**2
        x = x - ETA * scale * gradient / (h.sqrt() + 1e-8)
        pulled[i], version[i] = x, number + 1
    return x


def test_a_staleness_aware_rate_is_not_divided_away() -> None:
    run = Run(3, name="staleness-aware", optimizer="rmsprop")
    run.is_(rescaled(run), rescaled(run, divided_away=True), rescaled(run, asynchronous=True))


# BMUF. fairseq copies the look-ahead model of Nesterov's variant into the global one; ours once measured the
# workers' deltas from the global model instead of the look-ahead, where they started, which counts it twice.


def blockwise(
    run: Run, momentum: float, rate: float, nesterov: bool, copied: bool = False, twice: bool = False
) -> Tensor:
    w, delta = run.start, 0 * run.start
    for steps in rounds(WINDOW):
        start = w + momentum * delta if nesterov and not copied else w
        models = [start for _ in run.workers]
        for t in steps:
            models = [x - ETA * run.gradient(x, i, t) for i, x in enumerate(models)]
        delta = momentum * delta + rate * (sum(models) / len(models) - (w if twice else start))
        w = w + delta + (momentum * delta if copied else 0)
    return w


@pytest.mark.parametrize("rate", [1.0, 0.7])
def test_bmuf_keeps_the_model_apart_from_the_look_ahead(rate: float) -> None:
    given = {"name": "bmuf", "averaging_period": WINDOW, "block_learning_rate": rate}
    classic, ahead = Run(3, **given), Run(3, block_nesterov=True, **given)
    momentum = 1 - 1 / 3
    right, other = (blockwise(ahead, momentum, rate, nesterov) for nesterov in (True, False))
    mistakes = {"copied": True}, {"twice": True}
    ahead.is_(right, other, *(blockwise(ahead, momentum, rate, True, **mistake) for mistake in mistakes))
    classic.is_(other, right)


# FedProx. Flower's docstring adds (μ/2)‖w − wₜ‖ to the loss, not its square.


def proximal(run: Run, mu: float, squared: bool = True) -> Tensor:
    model = run.start
    for steps in rounds(3):
        clients = []
        for i in run.workers:
            w = model
            for t in steps:
                away = w - model
                pull = mu * away if squared else mu / 2 * away / away.norm().clamp(min=1e-12)
                w = w - ETA * (run.gradient(w, i, t) + pull)
            clients.append(w)
        model = sum(clients) / len(clients)
    return model


@pytest.mark.parametrize("workers", [1, 3])
def test_fedprox_squares_the_distance(workers: int) -> None:
    run = Run(workers, name="fedprox", mu=0.5, local_epochs=3)  # an epoch of endless data is a mini-batch
    run.is_(proximal(run, 0.5), proximal(run, 0.5, squared=False), proximal(run, 0.0))
