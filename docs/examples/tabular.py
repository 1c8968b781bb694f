"""A table in a CSV file: numbers, and a column to tell."""

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import TensorDataset

import lockstep


def mlp(file, target, hidden=64, held_out=0.2):
    """Classify by the column `target`; all other columns are numbers, without gaps."""
    table = pd.read_csv(file)
    for name, cells in table.items():
        good = cells.notna() if name == target else np.isfinite(pd.to_numeric(cells, errors="coerce"))
        if not good.all():
            row = good.argmin()
            found = "empty" if pd.isna(cells[row]) else repr(cells[row])
            wanted = "each needs a value" if name == target else "each must be a number"
            raise ValueError(f"{file}: row {row + 1} below the header, column {name!r} is {found}; {wanted}")
    table = table.sample(frac=1, random_state=0)
    y = torch.tensor(table[target].astype("category").cat.codes.to_numpy(), dtype=torch.long)
    x = torch.tensor(table.drop(columns=target).to_numpy(), dtype=torch.float32)
    cut = int(len(x) * held_out)
    x = (x - x[cut:].mean(0)) / x[cut:].std(0).clamp_min(1e-6)
    model = nn.Sequential(nn.Linear(x.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, int(y.max()) + 1))
    return lockstep.Task(
        model=model,
        train=TensorDataset(x[cut:], y[cut:]),
        test=TensorDataset(x[:cut], y[:cut]),
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        metrics={"accuracy": lambda logits, batch: logits.argmax(1) == batch[1]},
    )
