"""Models that torch.compile has made kernels of."""

import os
import shutil
from typing import Any

from torch import Tensor, device, nn

from lockstep.scenarios import ScenarioError

_ROUNDING = {"float32": 0.01, "bf16": 0.1, "fp16": 0.1}  # how far gradients may be apart, of their length
_COMPILERS = ("g++", "clang++", "c++")


def compiled(module: nn.Module, on: device) -> Any:
    """Return what computes as a module does, with the same parameters; the first passes compile it.

    Masks of dropout are those of the module itself. On a CPU it needs a C++ compiler: raises `ScenarioError`.
    """
    import torch
    from torch._inductor import config

    wanted = [os.environ["CXX"]] if "CXX" in os.environ else _COMPILERS
    if on.type == "cpu" and not any(map(shutil.which, wanted)):
        problem = f"needs a C++ compiler, and there is no {' or '.join(wanted)}; install one, or leave it out"
        raise ScenarioError(problem, key="workload.compile")
    config.compile_threads = 1  # else a pool of processes of its own for each that computes
    config.fallback_random = True
    return torch.compile(module)


def require_alike(compiled: Tensor, plain: Tensor, precision: str) -> None:
    """Raise `ScenarioError` if a gradient is not that of the model as it is, but for rounding.

    torch.compile makes wrong gradients of some models, and says nothing: with torch 2.13.0 on a CPU, those of
    two convolutions before a pooling were 0 (pytorch/pytorch#185509 is of that kind).
    """
    apart = float((compiled - plain).norm() / plain.norm().clamp_min(1e-30))
    if not apart <= _ROUNDING[precision]:
        import torch

        problem = f"of this model torch.compile (torch {torch.__version__}) makes one with other gradients"
        raise ScenarioError(f"must be false: {problem}, {apart:.0%} off", key="workload.compile")
