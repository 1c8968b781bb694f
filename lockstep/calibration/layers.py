"""Where a gradient's time goes: each layer's passes, and when each tensor's gradient is ready."""

import time
from collections import defaultdict
from statistics import fmean, median, pstdev
from typing import Any

from scipy import stats
from torch import Tensor
from torch.utils._pytree import tree_leaves

from lockstep.calibration.process import alone
from lockstep.executor.devices import Wanted, own, settle
from lockstep.scenarios.workload import Trained
from lockstep.workloads.classifier import Classifier
from lockstep.workloads.task import trained

_TURNS, _WARM, _LEAST_S = 30, 3, 0.5


def split(workload: Trained, wanted: Wanted = "auto") -> dict[str, Any]:
    """`backward`: the share of a gradient's time after the last layer's forward pass; and the evidence.

    On the device that gradients are computed on; a GPU is waited for at each instant. `layers`: [name,
    seconds forward, seconds backward, and the coefficients of variation of both] of each module without
    children; backward is from the gradient of its output to that of the output before. `tensors`: [name,
    parameters, instant at which its gradient is ready as a share of the gradient's time]. Of layers means, of
    the others medians; hooks take some us a layer.
    """
    return alone(_split, workload.model_copy(update={"learning": None}), wanted)


def _split(workload: Trained, wanted: Wanted = "auto") -> dict[str, Any]:
    learner = Classifier(workload, 1, 0, own(wanted))
    names = {module: name for name, module in learner.module.named_modules() if not list(module.children())}
    weights = trained(learner.module)
    events: list[tuple[float, str, str]] = []  # instant, what happens, to which layer or tensor

    def now() -> float:
        settle(learner.device)
        return time.perf_counter()

    def note(what: str, name: str) -> Any:
        return lambda *_: events.append((now(), what, name))

    def left(name: str) -> Any:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            events.append((now(), "forward to", name))
            made = [each for each in tree_leaves(output) if isinstance(each, Tensor) and each.requires_grad]
            if made:
                made[0].register_hook(note("backward from", name))  # type: ignore[no-untyped-call]

        return hook

    for module, name in names.items():
        module.register_forward_pre_hook(note("forward from", name))
        module.register_forward_hook(left(name))
    learner.module.register_forward_hook(note("forward", ""))  # where its own code computes, no layer's
    for name, weight in weights.items():
        weight.register_hook(note("ready", name))  # type: ignore[no-untyped-call]
    took: dict[tuple[str, str], list[float]] = defaultdict(list)
    parameters, step, began = learner.initial(), 0, time.perf_counter()
    if workload.readers:
        learner.read_ahead(0, 0)
    while step < _TURNS + _WARM or time.perf_counter() - began < _LEAST_S:
        if workload.readers:
            learner.batch(0, step)  # stays at hand: reading is no part of a gradient
        events.clear()
        start = now()
        learner.gradient(parameters, 0, step)
        end = now()
        step += 1
        if step > _WARM:
            for key, value in _measured(events, start, end).items():
                took[key].append(value)
    found = {key: median(values) for key, values in took.items()}
    low, high = stats.quantile_test(took["share", ""]).confidence_interval()
    return {
        "backward": found["share", ""],
        "interval": [float(low), float(high)],
        "layers": [
            [name, *(of(took[way, name]) for of in (_mean, _variation) for way in ("forward", "backward"))]
            for name in names.values()
        ],
        "tensors": [
            [
                name,
                weight.numel(),
                found.get(("ready", name), 1.0),
            ]  # of what the loss does not use: at the end
            for name, weight in weights.items()
        ],
    }


def _mean(times: list[float]) -> float:
    return fmean(times) if times else 0.0


def _variation(times: list[float]) -> float:
    return pstdev(times) / fmean(times) if times and fmean(times) else 0.0


def _measured(events: list[tuple[float, str, str]], start: float, end: float) -> dict[tuple[str, str], float]:
    """What one gradient took, from its events: sums, for a layer may be used more than once."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    forward_from: dict[str, float] = {}
    backward = [event for event in events if event[1] == "backward from"]
    for at, what, name in events:
        if what in ("forward to", "forward"):
            found["share", ""] = (end - at) / (end - start)  # from the last of them on
        if what == "forward from":
            forward_from[name] = at
        elif what == "forward to":
            found["forward", name] += at - forward_from[name]
        elif what == "ready":
            found["ready", name] = (at - start) / (end - start)
    ends = [*(at for at, _, _ in backward[1:]), end]
    for (at, _, name), until in zip(backward, ends, strict=True):
        found["backward", name] += until - at
    return found
