"""Strategies in which workers meet, and codecs, by hand from their papers (by_hand.py)."""

from collections.abc import Callable
from copy import copy
from math import log2
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from lockstep.workloads import build
from tests.support.by_hand import RATE, WORKERS, Gradient, Vector, begin, config, ends_with, named

STEPS = 22  # the last round is shorter
EVERYONE = range(WORKERS)
Step = Callable[[Vector, Vector], Vector]  # of the gradient and the parameters
Hand = Callable[[Vector, Gradient], Vector]


def sgd(rate: float = RATE) -> Step:
    return lambda g, x: -rate * g


class Adam:
    """Kingma and Ba 2015, algorithm 1; with a decay of weights Loshchilov and Hutter 2019, algorithm 2."""

    def __init__(self, rate: float, decay: float = 0.0) -> None:
        self.rate, self.decay, self.m, self.v, self.t = rate, decay, np.zeros(1), np.zeros(1), 0

    def __call__(self, g: Vector, x: Vector) -> Vector:
        self.t += 1
        self.m, self.v = 0.9 * self.m + 0.1 * g, 0.999 * self.v + 0.001 * g * g
        m, v = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        return -self.rate * (m / (np.sqrt(v) + 1e-8) + self.decay * x)


def rounds(period: int, first: int = 0) -> list[range]:
    return [range(k, min(k + period, STEPS)) for k in range(first, STEPS, period)]


def walk(g: Gradient, x: Vector, worker: int, steps: range, optimizer: Step) -> Vector:
    for k in steps:
        x = x + optimizer(g(x, worker, k), x)
    return x


def mean(vectors: Any) -> Vector:
    return np.mean(list(vectors), axis=0)


def synchronous(x: Vector, g: Gradient) -> Vector:
    for k in range(STEPS):
        x = x - RATE * mean(g(x, i, k) for i in EVERYONE)
    return x


def averaging(period: int, optimizer: Callable[[], Step] = sgd) -> Hand:
    def hand(x: Vector, g: Gradient) -> Vector:
        own = [optimizer() for _ in EVERYONE]
        for steps in rounds(period):
            x = mean(walk(g, x, i, steps, own[i]) for i in EVERYONE)
        return x

    return hand


def bmuf(momentum: float, rate: float, nesterov: bool) -> Hand:
    """Chen and Huo 2016: V the blocks' start, G = mean(w) − V; Δ ← ηΔ + ζG; W ← W + Δ; V = W, or W + ηΔ."""

    def hand(w: Vector, g: Gradient) -> Vector:
        delta = 0 * w
        for steps in rounds(3):
            v = w + momentum * delta if nesterov else w
            delta = momentum * delta + rate * (mean(walk(g, v, i, steps, sgd()) for i in EVERYONE) - v)
            w = w + delta
        return w

    return hand


def diloco(x: Vector, g: Gradient) -> Vector:
    """Douillard et al. 2023, algorithm 1, with torch's SGD(0.7, momentum=0.9, nesterov=True) outside."""
    own, buffer = [Adam(1e-3, 0.1) for _ in EVERYONE], 0 * x
    for steps in rounds(5):
        delta = mean(x - walk(g, x, i, steps, own[i]) for i in EVERYONE)
        buffer = 0.9 * buffer + delta
        x = x - 0.7 * (delta + 0.9 * buffer)
    return x


def post_local_sgd(x: Vector, g: Gradient) -> Vector:
    """Lin et al. 2020: mini-batch SGD, here with Adam, for 9 steps; then local steps from its state."""
    adam = Adam(0.01)
    for k in range(9):
        x = x + adam(mean(g(x, i, k) for i in EVERYONE), x)
    own = [copy(adam) for _ in EVERYONE]
    for steps in rounds(4, first=9):
        x = mean(walk(g, x, i, steps, own[i]) for i in EVERYONE)
    return x


def fedadam(x: Vector, g: Gradient) -> Vector:
    """Reddi et al. 2021, algorithm 2, with v₋₁ = τ²; local steps so small that τ counts."""
    m, v = 0 * x, 1e-6
    for steps in rounds(5):
        delta = mean(walk(g, x, i, steps, sgd(1e-3)) for i in EVERYONE) - x
        m, v = 0.9 * m + 0.1 * delta, 0.99 * v + 0.01 * delta**2
        x = x + 0.01 * m / (np.sqrt(v) + 1e-3)
    return x


def easgd(period: int, alpha: float) -> Hand:
    """Zhang et al. 2015, eqs. 5 and 6, every `period` steps; the last move towards the centre is ours."""

    def hand(centre: Vector, g: Gradient) -> Vector:
        x = [centre] * WORKERS
        for k in range(STEPS):
            meets = k > 0 and k % period == 0
            back = [alpha * (own - centre) if meets else 0 * own for own in x]
            x = [x[i] - RATE * g(x[i], i, k) - back[i] for i in EVERYONE]
            centre = centre + sum(back)
        return centre + alpha * sum(own - centre for own in x)

    return hand


def fedprox(mu: float) -> Hand:
    """Li et al. 2020, algorithm 2, where everybody takes part: E = 5, a pass is one mini-batch."""

    def hand(model: Vector, g: Gradient) -> Vector:
        for steps in rounds(5):
            ends = []
            for i in EVERYONE:
                w = model
                for k in steps:
                    w = w - RATE * (g(w, i, k) + mu * (w - model))
                ends.append(w)
            model = mean(ends)
        return model

    return hand


def d_psgd(x: Vector, g: Gradient) -> Vector:
    """Lian et al. 2017, algorithm 1, on a ring with weights of a third."""
    models = [x] * WORKERS
    for k in range(STEPS):
        steps = [RATE * g(models[i], i, k) for i in EVERYONE]
        models = [(models[i - 1] + models[i] + models[(i + 1) % WORKERS]) / 3 - steps[i] for i in EVERYONE]
    return mean(models)


def sgp(x: Vector, g: Gradient) -> Vector:
    """Assran et al. 2019, algorithm 1: hops of 2⁰, 2¹, … 2^⌊lg(n − 1)⌋, half to oneself, half to another."""
    models, weights, hops = [x] * WORKERS, [1.0] * WORKERS, int(log2(WORKERS - 1)) + 1
    for k in range(STEPS):
        half = [(models[i] - RATE * g(models[i] / weights[i], i, k)) / 2 for i in EVERYONE]
        back = 2 ** (k % hops)
        models = [half[i] + half[i - back] for i in EVERYONE]
        weights = [weights[i] / 2 + weights[i - back] / 2 for i in EVERYONE]
    return mean(model / weight for model, weight in zip(models, weights, strict=True))


def local_adam() -> Step:
    return Adam(0.01)


CASES: list[tuple[dict[str, Any], Hand]] = [
    ({"name": "synchronous"}, synchronous),
    ({"name": "all-reduce"}, synchronous),
    ({"name": "model-averaging", "averaging_period": 5}, averaging(5)),
    ({"name": "local-sgd", "averaging_period": 5}, averaging(5)),
    (
        {"name": "local-sgd", "averaging_period": 5, "optimizer": "adam", "learning_rate": 0.01},
        averaging(5, local_adam),
    ),
    ({"name": "bmuf", "averaging_period": 3}, bmuf(1 - 1 / WORKERS, 1.0, nesterov=False)),
    (
        {"name": "bmuf", "averaging_period": 3, "block_nesterov": True,
         "block_momentum": 0.5, "block_learning_rate": 0.8},
        bmuf(0.5, 0.8, nesterov=True),
    ),
    (
        {"name": "diloco", "averaging_period": 5, "learning_rate": 1e-3},
        diloco,
    ),
    (
        {"name": "post-local-sgd", "averaging_period": 4, "switch_step": 9, "buckets": 3,
         "optimizer": "adam", "learning_rate": 0.01},
        post_local_sgd,
    ),
    (
        {"name": "model-averaging", "averaging_period": 5, "learning_rate": 1e-3,
         "server_optimizer": "adam"},
        fedadam,
    ),
    ({"name": "easgd", "communication_window": 1, "rho": 1.0}, easgd(1, RATE)),
    ({"name": "easgd", "communication_window": 3}, easgd(3, 0.9 / WORKERS)),
    ({"name": "fedavg"}, fedprox(0.0)),
    ({"name": "fedprox", "mu": 0.3}, fedprox(0.3)),
    ({"name": "d-psgd"}, d_psgd),
    ({"name": "sgp"}, sgp),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "hand"), CASES, ids=named)
def test_by_hand(strategy: dict[str, Any], hand: Hand) -> None:
    run = config(strategy, stop={"steps": STEPS})
    ends_with(run, hand(*begin(run)))


def test_fedavg_of_uneven_clients() -> None:
    """McMahan et al. 2017, algorithm 1, with the server's own draws; clients count by their mini-batches."""
    workload = {"problem": "logistic", "dimension": 6, "batch_size": 8, "partition": {"dirichlet": 0.5}}
    strategy = {"name": "fedavg", "participation": 0.5, "local_epochs": 1}
    run = config(strategy, workload=workload, stop={"updates": 4})
    x, g = begin(run)
    learner = build(run.workload, WORKERS, run.seed)
    passes, made = [learner.epoch(i) for i in EVERYONE], [0] * WORKERS
    assert len(set(passes)) > 2
    draws = Random(f"{run.seed}/node/{WORKERS}")
    for _ in range(4):
        cohort, ends = sorted(draws.sample(EVERYONE, 2)), []
        for i in cohort:
            ends.append(walk(g, x, i, range(made[i], made[i] + passes[i]), sgd()))
            made[i] += passes[i]
        x = np.average(ends, axis=0, weights=[passes[i] for i in cohort])
    ends_with(run, x)


@pytest.mark.parametrize(("codec", "narrow"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_narrow_sums_around_a_ring(codec: str, narrow: torch.dtype) -> None:
    """Each chunk is added up in narrow numbers from its own worker on; what is lost before, comes later."""
    run = config({"name": "all-reduce", "codec": codec}, stop={"steps": STEPS})
    x, g = begin(run)
    lost = [torch.zeros(len(x))] * WORKERS
    for k in range(STEPS):
        wanted = [torch.from_numpy(g(x, i, k)).float() + lost[i] for i in EVERYONE]
        sent = [vector.to(narrow) for vector in wanted]
        lost = [vector - body.float() for vector, body in zip(wanted, sent, strict=True)]
        chunks = []
        for chunk in EVERYONE:
            part = slice(len(x) * chunk // WORKERS, len(x) * (chunk + 1) // WORKERS)
            total = sent[chunk][part]
            for hop in range(1, WORKERS):
                total = total + sent[(chunk + hop) % WORKERS][part]
            chunks.append(total)
        x = x - RATE * torch.cat(chunks).double().numpy() / WORKERS
    result = ends_with(run, x)
    sent_bytes = result.records.loc[result.records["event"] == "message", "nbytes"].sum()
    assert sent_bytes == STEPS * WORKERS * 2 * (WORKERS - 1) / WORKERS * 2 * len(x)


def one_bit(v: Vector) -> Vector:
    """Seide et al. 2014: two levels, the means of either side of 0."""
    return np.where(v >= 0, v[v >= 0].mean(), v[v < 0].mean())


def test_one_bit_both_ways_is_cntk_s() -> None:
    """Workers hold the model of CNTK, which quantises the sum of what came, with a residual of its own."""
    run = config({"name": "synchronous", "codec": "1-bit", "answer_codec": "1-bit"}, stop={"steps": STEPS})
    x, g = begin(run)
    residuals, of_the_sum = [0 * x] * WORKERS, 0 * x
    for k in range(STEPS):
        decoded = []
        for i in EVERYONE:
            v = g(x, i, k) + residuals[i]
            decoded.append(one_bit(v))
            residuals[i] = v - decoded[i]
        v = mean(decoded) + of_the_sum
        of_the_sum = v - one_bit(v)
        x = x - RATE * one_bit(v)
    ends_with(run, x - RATE * of_the_sum)  # the server's parameters have what it has not sent yet
