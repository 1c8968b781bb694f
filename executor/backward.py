"""A gradient that is computed in a thread of its own: its first parts travel while the others are computed.

On a GPU it has a stream of its own too, so that what the node does meanwhile need not wait for all of it.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from lockstep.workloads.base import Ready

if TYPE_CHECKING:
    from lockstep.executor.node import RealNode

T = TypeVar("T")
Compute = Callable[[Ready], Tensor]


class Later(Awaitable[T]):
    """A part of an emulated gradient, which a node has from the instant `at` on."""

    def __init__(self, node: "RealNode", at: float, value: T) -> None:
        self.node = node
        self.at = at
        self.value = value

    def __await__(self) -> Generator[Any, Any, T]:
        self.node._wait_until(self.at)
        self.node._note_loss()
        return self.value
        yield


class Part(Awaitable[Tensor]):
    """Awaiting it blocks until a part of a gradient has been computed; raises what that has failed with."""

    def __init__(self, part: slice, awaited: Callable[[], None]) -> None:
        self.part = part
        self._awaited = awaited
        self._there = Event()
        self._gradient: Tensor | None = None
        self._computed: Any = None  # on a GPU: what happens when it has been
        self._failure: BaseException | None = None

    def ready(self, gradient: Tensor) -> None:
        """It is there, or will be when the GPU has come to it."""
        self._gradient = gradient
        if gradient.is_cuda:
            self._computed = torch.cuda.current_stream(gradient.device).record_event()
        self._there.set()

    def fail(self, error: BaseException) -> None:
        """It will not be there."""
        self._failure = error
        self._there.set()

    def __await__(self) -> Generator[Any, Any, Tensor]:
        self._there.wait()
        if self._failure is not None:
            raise self._failure
        gradient = self._gradient
        assert gradient is not None
        if self._computed is not None:
            self._computed.synchronize()
            gradient.record_stream(torch.cuda.current_stream(gradient.device))  # which is going to read it
        self._awaited()
        return gradient[self.part]
        yield


class Beside:
    """The thread in which a node computes, one gradient after the other, on `device`."""

    def __init__(self, device: torch.device) -> None:
        # How many threads compute is the calling thread's affair in some of torch's libraries: as many here.
        as_here = torch.get_num_threads()
        self._thread = ThreadPoolExecutor(1, "backward", torch.set_num_threads, (as_here,))
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def backward(
        self,
        compute: Compute,
        parts: Sequence[slice],
        computed: Callable[[], None],
        awaited: Callable[[], None],
    ) -> list[Part]:
        """Begin `compute`; its parts. `computed` is called at its end, `awaited` when a part has been."""
        found = [Part(part, awaited) for part in parts]
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        self._thread.submit(self._run, compute, found, computed)
        return found

    def end(self) -> None:
        """Wait until what is being computed has been."""
        self._thread.shutdown()

    def _run(self, compute: Compute, parts: Sequence[Part], computed: Callable[[], None]) -> None:
        missing = sorted(parts, key=lambda part: part.part.start)

        def ready(first: int, gradient: Tensor) -> None:
            while missing and missing[-1].part.start >= first:
                missing.pop().ready(gradient)

        try:
            with torch.cuda.stream(self._stream) if self._stream else nullcontext():
                gradient = compute(ready)
                if self._stream is not None:
                    self._stream.synchronize()
                computed()
                ready(0, gradient)
        except BaseException as error:
            for part in missing:
                part.fail(error)
