"""A small GPT that learns to continue a text, character by character."""

from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import lockstep
from lockstep.workloads import sentences


class Block(nn.Module):
    """Causal attention and a feed-forward part, each normalised before and added to what came in."""

    def __init__(self, width, heads):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.forward_part = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        """(samples, positions, width), as what comes in."""
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        y = self.before(x)
        x = x + self.attention(y, y, y, attn_mask=later, need_weights=False)[0]
        return x + self.forward_part(self.between(x))


class GPT(nn.Module):
    """From characters, (samples, positions), to logits of those that follow; the embedding is tied."""

    def __init__(self, alphabet, length, width, heads, layers):
        super().__init__()
        self.characters = nn.Embedding(alphabet, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, alphabet, bias=False)
        nn.init.normal_(self.characters.weight, std=0.02)
        self.head.weight = self.characters.weight

    def forward(self, characters):
        """(samples, positions) to (samples, positions, alphabet)."""
        return self.head(self.blocks(self.characters(characters) + self.positions))


def gpt(file=None, length=32, width=64, heads=4, layers=2, held_out=0.1):
    """Learn the text in a file, or the one that ships; its last part is held out."""
    text = Path(file).read_text(encoding="utf-8") if file else sentences.text().characters
    alphabet = sorted(set(text))
    numbers = torch.tensor([alphabet.index(character) for character in text])
    count = (len(numbers) - 1) // length
    x, y = (numbers[start : start + count * length].view(count, length) for start in (0, 1))
    cut = count - max(1, int(count * held_out))

    def loss(model, batch):
        return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    return lockstep.Task(
        model=lambda: GPT(len(alphabet), length, width, heads, layers),
        train=TensorDataset(x[:cut], y[:cut]),
        test=TensorDataset(x[cut:], y[cut:]),
        loss=loss,
        metrics={"accuracy": lambda logits, batch: logits.argmax(-1) == batch[1]},
    )
