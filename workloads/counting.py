"""Counts the parameters and FLOPs of a model with torch, which takes seconds; no data is loaded.

`python -m lockstep.workloads.counting` counts every model on every shape of image, and writes what
`lockstep.workloads.sizes` looks up: minutes, when torchvision has changed.
"""

import csv
from collections.abc import Iterator
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

from lockstep.workloads import models
from lockstep.workloads.forms import FORMS, Form
from lockstep.workloads.sizes import COLUMNS, TABLE, image

# What torch raises where a model does not fit its input.
MISFITS = (RuntimeError, ValueError, AssertionError)


def count(name: str, form: Form, *batches: int) -> tuple[int, list[int]]:
    """Return the parameters, and the FLOPs of a gradient of each size of batch (a multiply-add is two).

    Raises ScenarioError for a model that does not exist, and one of MISFITS for one that cannot be trained.
    """
    build = partial(models.build, name, form.shape, form.classes, seed=0)
    try:
        with torch.device("meta"):
            model = build()
    except NotImplementedError:  # RegNet computes its widths with tensors
        model = build().to("meta")
    flops = []
    for batch in batches:
        with FlopCounterMode(display=False) as counter, models.seeded(torch.device("cpu"), 0):
            model(torch.empty(batch, *form.shape, device="meta")).sum().backward()
        flops.append(int(counter.get_total_flops()))
    return sum(p.numel() for p in model.parameters()), flops


def row(name: str, form: Form) -> tuple[int, int, int]:
    """Return parameters, FLOPs a sample, and FLOPs that a batch of any size costs (in swin_v2 alone)."""
    parameters, (two, three) = count(name, form, 2, 3)
    return parameters, three - two, 3 * two - 2 * three


def _rows() -> Iterator[tuple[str, str, int, int, int]]:
    forms = {form.shape: form for form in FORMS.values()}
    for name in models.names():
        for form in forms.values():
            try:
                yield name, image(form), *row(name, form)
            except MISFITS:  # too small an image: whoever asks is told why
                continue


if __name__ == "__main__":
    rows = list(_rows())
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
