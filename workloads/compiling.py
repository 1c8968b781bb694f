"""Models that torch.compile has made kernels of."""

import os
import shutil
from collections.abc import Callable
from typing import Any

from torch import Tensor, device, nn

from lockstep.scenarios import ScenarioError

_ROUNDING = {"float32": 0.01, "bf16": 0.1, "fp16": 0.1}  # how far gradients may be apart, of their length
_LAST_BIT, _TIMES = 1.2e-7, 3  # of a float32; how far what is computed otherwise may be beyond it
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


def require_alike(compiled: Tensor, plain: Callable[[float], Tensor], precision: str) -> None:
    """Raise `ScenarioError` if a gradient is not that of the model as it is, but for rounding.

    plain: gives that, for parameters each of which is off by such a share. Of some models, such as a deep one
    with normalisations in bfloat16, the gradient is mostly rounding: there it may be as far off as a few last
    bits of the parameters make it.

    torch.compile makes wrong gradients of some models, and says nothing: with torch 2.13.0 on a CPU, those of
    two convolutions before a pooling were 0 (pytorch/pytorch#185509 is of that kind).
    """
    expected = plain(0.0)
    apart = _apart(compiled, expected)
    if apart <= _ROUNDING[precision] or not bool(expected.isfinite().all()):
        return
    if not apart <= _TIMES * _apart(plain(_LAST_BIT), expected):
        import torch

        problem = f"of this model torch.compile (torch {torch.__version__}) makes one with other gradients"
        raise ScenarioError(f"must be false: {problem}, {apart:.0%} off", key="workload.compile")


def _apart(one: Tensor, other: Tensor) -> float:
    """The length of the difference, as a share of the other's."""
    return float((one - other).norm() / other.norm().clamp_min(1e-30))
