"""Models that torch.compile has made kernels of."""

import os
import shutil
from typing import Any

from torch import device, nn

from lockstep.scenarios import ScenarioError

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
