"""Modules of users' tasks, as files in a folder of their own, and scenarios that name them."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import lockstep
from lockstep.scenarios import Scenario
from lockstep.scenarios.loading import made
from lockstep.sweeping.points import keys

MINE = {"task": "my_task:digits", "batch_size": 32}
SHIPPED = {"dataset": "digits", "model": "mlp", "batch_size": 32}
"""The workload of `DIGITS`, and the shipped one of equal content."""
TIED = """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.b.weight = self.a.weight
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls.add_(1)
        return self.b(self.a(x)) + self.frozen(x) * self.calls
"""
DIGITS = """
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.utils.data import TensorDataset
    import numpy as np

    import lockstep


    def digits(hidden=64, data=TensorDataset):
        bunch = load_digits()
        order = np.random.default_rng(0).permutation(len(bunch.target))
        x, y = torch.tensor(bunch.images[order]).unsqueeze(1), torch.tensor(bunch.target[order])
        pixels = x[:1437]
        mean = pixels.mean((0, 2, 3), keepdim=True)
        spread = (pixels.square().mean((0, 2, 3), keepdim=True) - mean.square()).sqrt()
        x = ((x - mean) / spread).float()
        return lockstep.Task(
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10)),
            data(x[:1437], y[:1437]),
            data(x[1437:], y[1437:]),
            lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
            {"accuracy": lambda logits, batch: logits.argmax(1) == batch[1]},
        )
"""
"""The digits as they ship, with the model mlp."""


def written(folder: Path, text: str, module: str = "my_task") -> Path:
    """Write a user's module; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(dedent(text))
    return folder


def task(
    model: str = "nn.Linear(2, 2)", data: str = "", loss: str = "", more: str = "", metrics: str = "{}"
) -> str:
    """The text of a small task `f`, whose samples are points and their quadrants' sides."""
    return dedent(f"""
        import torch
        from torch import nn
        from torch.utils.data import Dataset, TensorDataset
        import lockstep

        {dedent(more).replace(chr(10), chr(10) + " " * 8)}

        def f(n=64):
            x = torch.randn(n, 2)
            train = test = {data or "TensorDataset(x, (x[:, 0] > 0).long())"}
            loss = {loss or "lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])"}
            return lockstep.Task({model}, train, test, loss, {metrics})
    """)


def document(**changes: Any) -> dict[str, Any]:
    """A scenario with a user's task."""
    compute = {"time": {"distribution": "constant", "value": "2 ms"}}
    return {
        "name": "mine",
        "cluster": {"workers": 2, "network": {}, "compute": compute},
        "workload": {"task": "my_task:f", "batch_size": 8},
        "strategy": {"name": "synchronous", "learning_rate": 0.1},
        "stop": {"steps": 4},
        **changes,
    }


def simulated(workload: dict[str, Any], **changes: Any) -> lockstep.Result:
    """A run of `document` with a workload."""
    return lockstep.simulate(made(document(workload=workload, **changes)))


def key(scenario: Scenario) -> str:
    """The name of its run in a sweep's folder."""
    return keys(scenario, "simulator", False, {})(scenario.seed)
