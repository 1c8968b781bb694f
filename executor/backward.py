"""A gradient that is computed in a thread of its own: its first parts travel while the others are computed.

On a GPU it has a stream of its own too, so that what the node does meanwhile need not wait for all of it.
"""

import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Condition
from typing import Any

import torch
from torch import Tensor

from workloads.base import Ready


class Beside:
    """The thread in which a node computes, one gradient after the other, on `device`."""

    def __init__(self, device: torch.device) -> None:
        self._thread = ThreadPoolExecutor(1, "backward")  # at the process's end it is waited for
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def backward(
        self,
        compute: Callable[[Ready], Tensor],
        parts: Sequence[slice],
        computed: Callable[[], None],
        awaited: Callable[[], None],
    ) -> "list[Part]":
        """Begin `compute`; its parts. `computed` is called when it is over, `awaited` when a part has been."""
        under_way = _Pass()
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))

        def run() -> None:
            try:
                with torch.cuda.stream(self._stream) if self._stream else nullcontext():
                    under_way.ready(0, compute(under_way.ready))
                if self._stream is not None:
                    self._stream.synchronize()
                computed()
            except BaseException as error:
                under_way.fail(error)

        self._thread.submit(run)
        return [Part(under_way, part, awaited) for part in parts]


class _Pass:
    """A backward pass under way."""

    def __init__(self) -> None:
        self._gradient: Tensor | None = None
        self._first = sys.maxsize  # its elements from this one on are there
        self._event: Any = None  # and on a GPU will be, once this has happened
        self._failure: BaseException | None = None
        self._news = Condition()

    def ready(self, first: int, gradient: Tensor) -> None:
        event = torch.cuda.current_stream(gradient.device).record_event() if gradient.is_cuda else None
        with self._news:
            self._first, self._gradient, self._event = first, gradient, event
            self._news.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._news:
            self._failure = error
            self._news.notify_all()

    def wait_for(self, part: slice) -> Tensor:
        """That part of the gradient, once it is there. Raises what the pass has failed with."""
        with self._news:
            self._news.wait_for(lambda: self._failure is not None or self._first <= part.start)
            if self._failure is not None:
                raise self._failure
            gradient, event = self._gradient, self._event
        assert gradient is not None
        if event is not None:
            event.synchronize()
            gradient.record_stream(torch.cuda.current_stream(gradient.device))  # which is to read it
        return gradient[part]


class Part(Awaitable[Tensor]):
    """Awaiting it blocks until a part of a gradient has been computed."""

    def __init__(self, under_way: _Pass, part: slice, awaited: Callable[[], None]) -> None:
        self._pass, self._part, self._awaited = under_way, part, awaited

    def __await__(self) -> Generator[Any, Any, Tensor]:
        value = self._pass.wait_for(self._part)
        self._awaited()
        return value
        yield
