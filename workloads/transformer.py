"""A decoder-only transformer in the manner of GPT-2: normalised before each part, learned positions, GELU.

It has no dropout, and the head has weights of its own, so that the model can be cut anywhere between parts.
Attention is written out: every probability is kept for the backward pass, as before kernels were fused.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn


class Embedding(nn.Module):
    """Of tokens and of positions."""

    def __init__(self, vocabulary: int, sequence: int, hidden: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Parameter(torch.empty(sequence, hidden))
        for weight in (self.tokens.weight, self.positions):
            nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.tokens(tokens)
        return embedded + self.positions


class Attention(nn.Module):
    """Normalised, of several heads, causal, and added to what came in."""

    def __init__(self, sequence: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (hidden // heads) ** -0.5
        self.norm = nn.LayerNorm(hidden)
        self.inputs = nn.Linear(hidden, 3 * hidden)
        self.outputs = nn.Linear(hidden, hidden)
        later = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
        self.register_buffer("later", later, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        # (samples, positions, 3·hidden) -> three of (samples, heads, positions, hidden / heads)
        parts = self.inputs(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return x + self.outputs(self.attend(parts[0], parts[1], parts[2]))  # type: ignore[no-any-return]

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Of some heads, (samples, heads, positions, features), to (samples, positions, heads · features)."""
        scores = (queries @ keys.transpose(-1, -2) * self.scale).masked_fill(self.later, float("-inf"))
        attended: Tensor = (scores.softmax(-1) @ values).transpose(1, 2).flatten(-2)
        return attended


class FeedForward(nn.Module):
    """Normalised, four times as wide inside, and added to what came in."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))  # type: ignore[no-any-return]


def transformer(vocabulary: int, sequence: int, layers: int, hidden: int, heads: int) -> nn.Module:
    """From tokens, int64 of shape (samples, sequence), to logits (samples, sequence, vocabulary)."""
    blocks = [
        (
            f"block{number}",
            nn.Sequential(
                OrderedDict(attention=Attention(sequence, hidden, heads), feed_forward=FeedForward(hidden))
            ),
        )
        for number in range(layers)
    ]
    return nn.Sequential(
        OrderedDict(
            [
                ("embedding", Embedding(vocabulary, sequence, hidden)),
                *blocks,
                ("norm", nn.LayerNorm(hidden)),
                ("head", nn.Linear(hidden, vocabulary, bias=False)),
            ]
        )
    )
