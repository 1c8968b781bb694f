"""A gradient that is computed in a thread of its own: its first parts travel while the others are computed.

On a GPU it has a stream of its own too, so that what the node does meanwhile need not wait for all of it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from lockstep.executor.devices import use
from lockstep.executor.waiting import Signal
from lockstep.workloads.base import Ready
from lockstep.workloads.streams import accelerated

Compute = Callable[[Ready], Tensor]


class Part(Signal):
    """Due when the backward pass has come down to element `start`; fails as that does."""

    __slots__ = ("_computed", "_gradient", "start")

    def __init__(self, start: int) -> None:
        super().__init__()
        self.start = start
        self._gradient: Tensor | None = None
        self._computed: Any = None  # on a GPU: what happens when it has been

    def ready(self, gradient: Tensor) -> None:
        """It is there, or will be when the GPU has come to it."""
        self._gradient = gradient
        if accelerated(gradient.device):
            self._computed = torch.accelerator.current_stream(gradient.device).record_event()
        self.flag.set()

    def block(self) -> None:  # noqa: D102
        super().block()
        if self._computed is not None and self._gradient is not None:
            self._computed.synchronize()
            # which is going to read it
            self._gradient.record_stream(torch.accelerator.current_stream(self._gradient.device))


class Pass:
    """One backward pass: its parts, what is due at its end, and the gradient as far as it is there."""

    def __init__(self, down_to: Sequence[int]) -> None:
        self.parts = [Part(start) for start in down_to]
        self.done = Signal()
        self.gradient: Any = None  # a tensor


def _begin(threads: int, device: torch.device) -> None:
    torch.set_num_threads(threads)
    use(device)


class Beside:
    """The thread in which a node computes, one gradient after the other, on `device`."""

    def __init__(self, device: torch.device) -> None:
        # How many threads compute is the calling thread's affair in some of torch's libraries: as many here.
        as_here = torch.get_num_threads()
        self._thread = ThreadPoolExecutor(1, "backward", _begin, (as_here, device))
        self._stream = torch.Stream(device) if accelerated(device) else None

    def backward(self, compute: Compute, down_to: Sequence[int], now: Callable[[], float]) -> Pass:
        """Begin `compute`. At its end `done` is due, with the time `now`."""
        found = Pass(down_to)
        if self._stream is not None:
            self._stream.wait_stream(torch.accelerator.current_stream(self._stream.device))
        self._thread.submit(self._run, compute, found, now)
        return found

    def end(self) -> None:
        """Wait until what is being computed has been."""
        self._thread.shutdown()

    def _run(self, compute: Compute, found: Pass, now: Callable[[], float]) -> None:
        missing = sorted(found.parts, key=lambda part: part.start)

        def ready(first: int, gradient: Tensor) -> None:
            found.gradient = gradient
            while missing and missing[-1].start >= first:
                missing.pop().ready(gradient)

        try:
            with self._stream or nullcontext():
                gradient = compute(ready)
                if self._stream is not None:
                    self._stream.synchronize()
                found.done.value = now()
                found.done.flag.set()
                ready(0, gradient)
        except BaseException as error:
            found.done.fail(error)
            for part in missing:
                part.fail(error)
