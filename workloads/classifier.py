"""A network that learns to classify images: the `Learner` of a data set and a model."""

from math import nan
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from scenarios.schema import Data
from workloads import datasets, models, seeds
from workloads.base import Evaluation
from workloads.batches import Batches
from workloads.partition import deal
from workloads.sizes import sizes

CHUNK = 512  # samples evaluated at once


class Classifier:
    """Cross entropy of a model's logits; the module and the data live on `device`."""

    def __init__(self, workload: Data, workers: int, seed: int, device: str) -> None:
        self.sizes = sizes(workload)
        self._seed, self._device = seed, torch.device(device)
        data = datasets.load(workload.dataset)
        self._train, self._test = (
            [tensor.to(device) for tensor in part]
            for part in ((data.train_x, data.train_y), (data.test_x, data.test_y))
        )
        shares = deal(data.train_y.numpy(), workers, seed, workload.partition)
        self._batches = Batches(shares, workload.batch_size, seed)
        self.loss = nan
        first, shape = seeds.integer(seed, "model"), datasets.FORMS[workload.dataset].shape
        self.module = models.build(workload.model, shape, data.classes, first).to(device)
        self._weights = list(self.module.parameters())
        self._counts = [weight.numel() for weight in self._weights]
        self._initial = torch.cat([weight.detach().flatten() for weight in self._weights])
        self._norms = [layer for layer in self.module.modules() if isinstance(layer, _BatchNorm)]

    def initial(self) -> Tensor:
        """Return the model's initialisation, a new vector of shape (parameters,)."""
        return self._initial.clone()

    def epoch(self, worker: int) -> int:
        """Return the mini-batches in one pass over the worker's share, rounded up."""
        return self._batches.in_epoch(worker)

    def gradient(self, parameters: Tensor, worker: int, step: int) -> Tensor:
        """Return the gradient of the batch's mean cross entropy, a new vector of shape (parameters,)."""
        batch = torch.from_numpy(self._batches(worker, step)).to(self._device)
        x, y = (tensor[batch] for tensor in self._train)
        self._fill(parameters)
        deterministic = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
        with deterministic, models.seeded(self._device, seeds.integer(self._seed, "dropout", worker, step)):
            loss = functional.cross_entropy(self.module(x), y)
            pieces = torch.autograd.grad(loss, self._weights)
        self.loss = loss.item()
        return torch.cat([piece.flatten() for piece in pieces])

    def evaluate(self, parameters: Tensor) -> Evaluation:
        """Return the mean cross entropy and the accuracy on the test set, without dropout.

        Batch normalisation uses the statistics of the first training images at these very parameters, not
        running averages, so that an evaluation does not depend on what was computed before.
        """
        self._fill(parameters)
        self.module.eval()
        loss, right = 0.0, 0
        with torch.no_grad():
            if self._norms:
                self._measure_statistics()
            for x, y in zip(*(torch.split(tensor, CHUNK) for tensor in self._test), strict=True):
                logits: Any = self.module(x)
                loss += functional.cross_entropy(logits, y, reduction="sum").item()
                right += int((logits.argmax(1) == y).sum().item())
        self.module.train()
        count = len(self._test[1])
        return Evaluation(loss / count, right / count)

    def _measure_statistics(self) -> None:
        for layer in self._norms:
            layer.reset_running_stats()
            layer.momentum = None  # the average of what follows
            layer.train()
        self.module(self._train[0][:CHUNK])
        for layer in self._norms:
            layer.eval()

    @torch.no_grad()
    def _fill(self, parameters: Tensor) -> None:
        """Copy into the module's own storage, which is aligned alike in every process: so bits agree."""
        for weight, piece in zip(self._weights, torch.split(parameters, self._counts), strict=True):
            weight.copy_(piece.view_as(weight))
