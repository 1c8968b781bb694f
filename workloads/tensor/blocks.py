"""A transformer's layers, cut as Megatron does: attention by head, the others by column and by row.

Shoeybi et al. 2019, "Megatron-LM", §3: two all-reduces forward and two backward a layer, one for the
embedding by vocabulary, and two values a token for the loss. With sequence parallelism (Korthikanti et al.
2022, §4.2.2) what is not cut otherwise is cut by position.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from lockstep.scenarios import ScenarioError
from lockstep.workloads.tensor.cutting import Range, lengths, share, shares
from lockstep.workloads.tensor.steps import (
    COPY,
    REDUCE,
    Compute,
    Context,
    Crossing,
    Step,
    Weight,
    gather,
    gather_split,
    scatter,
)
from lockstep.workloads.transformer import Attention, Embedding, FeedForward

Tensors = tuple[Tensor, ...]


class Blocks:
    """Device `part` of `parts`."""

    def __init__(self, parts: int, part: int, sequence: int | None) -> None:
        """sequence: positions, where they are cut too."""
        if sequence is not None and sequence % parts:
            said = f"{parts} devices must divide the {sequence} positions of workload.sequence"
            raise ScenarioError(said, key="parallelism.sequence")
        self.parts, self.part = parts, part
        self.by_position = sequence is not None
        positions = lengths(shares(sequence or 0, parts))
        self._whole: Crossing = gather_split(1, positions) if self.by_position else COPY
        self._sum: Crossing = scatter(1, positions) if self.by_position else REDUCE

    def steps(self, layer: int, name: str, module: nn.Module, weights: Sequence[int]) -> list[Step]:
        """Of a layer whose parameters have these numbers in the model."""
        if isinstance(module, Attention):
            found = list(self._attention(name, module, weights))
        elif isinstance(module, FeedForward):
            found = list(self._feed_forward(name, module, weights))
        elif isinstance(module, Embedding):
            found = list(self._embedding(name, module, weights))
        elif isinstance(module, nn.LayerNorm):
            found = [Compute(_norm(module), _all(weights), partial=self.by_position)]
        else:
            assert isinstance(module, nn.Linear)
            found = list(self._head(name, module, weights))
        return [replace(step, layer=layer) if isinstance(step, Compute) else step for step in found]

    def _attention(self, name: str, module: Attention, weights: Sequence[int]) -> Iterator[Step]:
        a, b = self._range(module.heads, f"heads of {name}")
        each, hidden = module.outputs.in_features // module.heads, module.outputs.in_features
        heads = b - a

        def attend(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
            normal, *rest = state
            inputs, bias, outputs = given
            each_head = functional.linear(normal, inputs, bias).view(*normal.shape[:2], 3, heads, -1)
            queries, keys, values = each_head.permute(2, 0, 3, 1, 4)
            return functional.linear(module.attend(queries, keys, values), outputs), *rest

        yield Compute(_norm(module.norm, keep=True), _all(weights[:2]), partial=self.by_position)
        yield self._whole
        of_heads = tuple((start * hidden + a * each, start * hidden + b * each) for start in range(3))
        own = (Weight(weights[2], 0, of_heads), Weight(weights[3], 0, of_heads))
        yield Compute(
            attend, (*own, Weight(weights[4], 1, ((a * each, b * each),))), work=heads / module.heads
        )
        yield self._sum
        yield Compute(_add, _all(weights[5:]), partial=self.by_position)

    def _feed_forward(self, name: str, module: FeedForward, weights: Sequence[int]) -> Iterator[Step]:
        wide = module.up.out_features
        own = self._range(wide, f"inner features of {name}")

        def feed(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
            normal, *rest = state
            up, bias, down = given
            return functional.linear(functional.gelu(functional.linear(normal, up, bias)), down), *rest

        yield Compute(_norm(module.norm, keep=True), _all(weights[:2]), partial=self.by_position)
        yield self._whole
        split = (Weight(weights[2], 0, (own,)), Weight(weights[3], 0, (own,)), Weight(weights[4], 1, (own,)))
        yield Compute(feed, split, work=(own[1] - own[0]) / wide)
        yield self._sum
        yield Compute(_add, _all(weights[5:]), partial=self.by_position)

    def _embedding(self, name: str, module: Embedding, weights: Sequence[int]) -> Iterator[Step]:
        vocabulary = module.tokens.num_embeddings
        a, b = self._range(vocabulary, f"words of {name}'s vocabulary")
        positions, words = weights

        def look_up(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
            here = (state[0] >= a) & (state[0] < b)
            found = functional.embedding((state[0] - a).clamp(0, b - a - 1), given[0])
            return (found * here.unsqueeze(-1),)

        def place(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
            return (state[0] + given[0],)

        yield Compute(look_up, (Weight(words, 0, ((a, b),)),), work=(b - a) / vocabulary)
        yield self._sum
        if self.by_position:
            yield Compute(place, (Weight(positions, 0, (self._range(len(module.positions), "positions"),)),))
        else:
            yield Compute(place, (Weight(positions),))

    def _head(self, name: str, module: nn.Linear, weights: Sequence[int]) -> Iterator[Step]:
        """With the loss: a token's is log Σ exp(logits) − the right one's logit, of which each has a part."""
        words = module.out_features
        a, b = self._range(words, f"words of {name}")

        def predict(state: Tensors, given: Sequence[Tensor], context: Context) -> Tensors:
            logits = functional.linear(state[0], given[0]).flatten(0, -2).float()
            labels = context.batch[1].flatten()  # of cross entropy
            here = (labels >= a) & (labels < b)
            right = logits.gather(1, (labels - a).clamp(0, b - a - 1).unsqueeze(1)).squeeze(1) * here
            return (torch.stack([logits.logsumexp(-1), right]),)

        def lose(state: Tensors, given: Sequence[Tensor], context: Context) -> Tensors:
            both = state[0].view(-1, 2, state[0].shape[-1])
            return ((both[:, 0].logsumexp(0) - both[:, 1].sum(0)).mean() / context.micro_batches,)

        yield self._whole
        yield Compute(predict, (Weight(weights[0], 0, ((a, b),)),), work=(b - a) / words)
        yield gather(0, [2] * self.parts)
        yield Compute(lose)

    def _range(self, count: int, what: str) -> Range:
        return share(count, self.parts, self.part, what)


def _all(numbers: Sequence[int]) -> tuple[Weight, ...]:
    return tuple(map(Weight, numbers))


def _norm(module: nn.LayerNorm, keep: bool = False) -> Callable[..., Tensors]:
    """keep: what came in is needed again, to be added to what comes out."""

    def normal(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
        found = functional.layer_norm(state[0], module.normalized_shape, given[0], given[1], module.eps)
        return (found, state[0]) if keep else (found,)

    return normal


def _add(state: Tensors, given: Sequence[Tensor], _: Context) -> Tensors:
    """A sum over the devices, its bias, and what went past it."""
    return (state[1] + (state[0] + given[0]),)
