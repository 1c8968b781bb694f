"""Jobs that end with the same numbers on a CPU, a GPU, or a device that is none."""

from typing import Any

from tests.support.tasks import document

MODEL = (
    "lambda: nn.Sequential(nn.Linear(2, 3000), nn.BatchNorm1d(3000), nn.ReLU(), nn.Dropout(0.2), Counts(), "
    "nn.Linear(3000, 64), nn.Tanh(), nn.Linear(64, 2))"
)
COUNTS = """
class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.passes.add_(1)
        return x / self.passes
"""
STRATEGIES: dict[str, dict[str, Any]] = {
    "rounds": {},
    "ring in parts": {"strategy": {"name": "all-reduce", "algorithm": "ring", "buckets": 3}},
    "native in parts": {"strategy": {"name": "all-reduce", "algorithm": "native", "buckets": 3}},
    "decentralised": {"strategy": {"name": "d-psgd"}},
    "1-bit": {"strategy": {"name": "synchronous", "codec": "1-bit"}},
    "top-k": {"strategy": {"name": "all-reduce", "codec": "top-k", "codec_ratio": 0.2}},
    "local Adam": {"strategy": {"name": "diloco", "averaging_period": 2}},
    "fsdp": {"strategy": {"name": "fsdp", "units": 2}},
    "pipeline": {"strategy": {"name": "all-reduce"}, "parallelism": {"pipeline": 2}},
}
SERVED: dict[str, dict[str, Any]] = {
    "rounds": {},
    "coded both ways": {"strategy": {"name": "synchronous", "codec": "1-bit", "answer_codec": "int8"}},
    "Adam, in chunks": {"strategy": {"name": "synchronous", "optimizer": "adam", "chunks": 3}},
    "elastic": {"strategy": {"name": "easgd", "communication_window": 2}},
    "whole variables": {"servers": {"placement": "by-variable"}},
    "relays": {"servers": {"count": 1, "hierarchy": {"groups": 1}}},
    "pipeline": {"parallelism": {"pipeline": 2}, "servers": {"count": 1}},
}


def job(changes: dict[str, Any]) -> dict[str, Any]:
    """A scenario of six steps. Gradients in parts go beside messages only where times are measured."""
    changed = document(**changes, stop={"steps": 6})
    changed["strategy"] = {"learning_rate": 0.1, **changed["strategy"]}
    if "buckets" in changed["strategy"]:
        changed["cluster"]["compute"] = "measured"
    return changed


def served(changes: dict[str, Any]) -> dict[str, Any]:
    """The same, with servers."""
    others = {key: value for key, value in changes.items() if key != "servers"}
    changed = job(others)
    changed["cluster"]["servers"] = {"count": 2, **changes.get("servers", {})}
    return changed
