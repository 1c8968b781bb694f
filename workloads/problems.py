"""Problems whose answers are known in closed form, or nearly: for theory, and for speed."""

from math import nan

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lockstep.scenarios.workload import Problem
from lockstep.workloads import seeds
from lockstep.workloads.base import Evaluation, Ready
from lockstep.workloads.batches import Batches, part
from lockstep.workloads.partition import deal
from lockstep.workloads.sizes import LOGISTIC_HELD_OUT, sizes


class Quadratic:
    """f(x) = ½ Σ hᵢ (xᵢ − x*ᵢ)², seen through noise: gradient h·(x − x*) + noise·N(0, I)/√batch.

    The curvatures h go evenly from 1 down to 0.1, so plain SGD is stable below a learning rate of 2. The
    optimum x* is drawn from N(0, I); the start is 0. Nothing is dealt out: every worker draws its own noise.
    """

    def __init__(self, workload: Problem, seed: int, device: str) -> None:
        self.sizes = sizes(workload)
        self._seed, self._scale = seed, workload.noise / workload.batch_size**0.5
        self.curvature = torch.linspace(1, 0.1, workload.dimension, device=device)
        self.optimum = self._normal("optimum").to(device)
        self.loss = nan

    def _normal(self, purpose: str, *key: int) -> Tensor:
        rng = seeds.generator(self._seed, purpose, *key)
        return torch.from_numpy(rng.standard_normal(self.sizes.parameters)).float()

    def initial(self) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(self.optimum)

    def epoch(self, worker: int) -> int:
        """Return 1: the noise is endless."""
        return 1

    def gradient(self, parameters: Tensor, worker: int, step: int, ready: Ready | None = None) -> Tensor:
        """Return the noisy gradient, new, of shape (dimension,)."""
        return self._gradient(parameters, self._scale * self._normal("noise", worker, step))

    def part(self, parameters: Tensor, worker: int, step: int, number: int, parts: int) -> Tensor:
        """Return the gradient of one of the equal parts of a mini-batch, which is as much noisier."""
        noise = self._normal("noise", worker, step, number)
        return self._gradient(parameters, self._scale * parts**0.5 * noise)

    def _gradient(self, parameters: Tensor, noise: Tensor) -> Tensor:
        distance = parameters.to(self.optimum.device) - self.optimum
        exact: Tensor = self.curvature * distance
        self.loss = (exact * distance).sum().item() / 2
        return exact + noise.to(exact.device)

    def evaluate(self, parameters: Tensor) -> Evaluation:
        """Return the exact excess loss f(x) − f(x*)."""
        distance = parameters.to(self.optimum.device, torch.float64) - self.optimum
        return Evaluation((self.curvature * distance.square()).sum().item() / 2, None)


class Logistic:
    """Logistic regression on drawn data: features x from N(0, I), label 1 with probability σ(x·w), |w| = 5.

    With a `density` each sample keeps round(density·dimension) features, at least 1, at random; they are
    larger by the square root of how many fewer they are, so that x·w varies as much. A gradient is then zero
    but for the features of its batch. The loss is the mean log loss; 512 samples are held out. There is no
    intercept; the start is 0; the workload's `noise` is not used: the labels are noisy enough.
    """

    def __init__(self, workload: Problem, workers: int, seed: int, device: str) -> None:
        self.sizes = sizes(workload)
        train, dimension = self.sizes.samples or 0, workload.dimension
        rng = seeds.generator(seed, "logistic")
        weights = rng.standard_normal(dimension)
        weights *= 5 / (weights**2).sum() ** 0.5
        x = rng.standard_normal((train + LOGISTIC_HELD_OUT, dimension))
        if workload.features < dimension:
            kept = seeds.generator(seed, "features").random(x.shape).argpartition(workload.features - 1)
            np.put_along_axis(x, kept[:, workload.features :], 0, axis=1)
            x *= (dimension / workload.features) ** 0.5
        y = (x * weights).sum(1) > rng.logistic(size=len(x))
        features, labels = (torch.from_numpy(array).float().to(device) for array in (x, y))
        self.train_x, self.test_x = features[:train], features[train:]
        self.train_y, self.test_y = labels[:train], labels[train:]
        shares = deal(y[:train], workers, seed, workload.partition)
        self._batches = Batches(shares, workload.batch_size, seed)
        self.loss = nan

    def initial(self) -> Tensor:
        """Return zeros."""
        return self.train_x.new_zeros(self.sizes.parameters)

    def epoch(self, worker: int) -> int:
        """Return the mini-batches in one pass over the worker's share, rounded up."""
        return self._batches.in_epoch(worker)

    def gradient(self, parameters: Tensor, worker: int, step: int, ready: Ready | None = None) -> Tensor:
        """Return the gradient of the mean log loss over the batch, new, of shape (dimension,)."""
        return self.part(parameters, worker, step, 0, 1)

    def part(self, parameters: Tensor, worker: int, step: int, number: int, parts: int) -> Tensor:
        """Return the gradient of the mean log loss over one of the equal parts of a mini-batch."""
        batch = torch.from_numpy(part(self._batches(worker, step), number, parts)).to(self.train_x.device)
        x, y = self.train_x[batch], self.train_y[batch]
        weights = torch.empty_like(x[0]).copy_(parameters)  # aligned alike in every process
        logits = x @ weights
        self.loss = functional.binary_cross_entropy_with_logits(logits, y).item()
        return x.T @ (torch.sigmoid(logits) - y) / len(y)

    def evaluate(self, parameters: Tensor) -> Evaluation:
        """Return the mean log loss and the accuracy on the held-out samples."""
        logits = self.test_x @ parameters.to(self.test_x.device)
        loss = functional.binary_cross_entropy_with_logits(logits, self.test_y)
        return Evaluation(loss.item(), ((logits > 0) == (self.test_y > 0.5)).double().mean().item())
