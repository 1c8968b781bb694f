"""The one place that imports torchvision, because a CPU build of torch needs help to do it.

The registry's torchvision is compiled against the CUDA build of torch. Beside a CPU build its compiled
operators cannot load, and ``import torchvision`` fails while it registers shape rules for ``nms`` and
``qnms``, two detection operators that nothing here calls. Declaring their schemas is all that the import
misses; datasets, transforms and models are plain Python and then work.
"""

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@functools.cache
def _declare_missing_operators() -> object:
    import torch

    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        library.define(operator + SCHEMA)  # type: ignore[no-untyped-call]
    return library  # cached, because the schemas live as long as it does


def import_torchvision() -> ModuleType:
    """Return the module torchvision, imported as it is or, where its operators cannot load, repaired.

    Any other failure of the import is passed on. Calling it again is free.
    """
    return repaired(importlib.import_module, "torchvision")


def repaired(function: Callable[..., T], *given: object, **named: object) -> T:
    """Return what a function returns that may import torchvision, perhaps by way of others' code.

    It may be called twice: what is random in it has to be seeded by itself.
    """
    try:
        return function(*given, **named)
    except Exception as error:
        if not _of_operators(error):
            raise
    _declare_missing_operators()
    return function(*given, **named)


def _of_operators(error: BaseException | None) -> bool:
    """Whether torchvision's operators are what an error, or one that it hides, is about."""
    while error is not None and "operator torchvision::" not in str(error):
        error = error.__cause__ or error.__context__
    return error is not None
