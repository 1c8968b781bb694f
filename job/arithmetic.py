"""What a node does with vectors beyond their operators: on tensors, or on sizes where nothing is learned."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from lockstep.job.sized import Sized, concatenate
from lockstep.strategies.codecs import Codec
from lockstep.strategies.multiple import multiple
from lockstep.workloads import layouts


class Arithmetic(Protocol):
    """See `strategies.Node` for what each member means."""

    initial: Any
    itemsize: int  # bytes of an element

    @property
    def finish(self) -> Callable[[], object] | None:
        """Wait until the device has done what it was told to; None: there is nothing to wait for."""

    def vector(self, values: Sequence[float]) -> Any: ...  # noqa: D102
    def concatenate(self, parts: Sequence[Any]) -> Any: ...  # noqa: D102
    def to_send(self, vector: Any) -> Any: ...  # noqa: D102
    def add(self, vector: Any, other: Any) -> Any: ...  # noqa: D102
    def add_parts(self, vector: Any, slices: Sequence[slice], parts: Sequence[Any]) -> Any: ...  # noqa: D102

    def blank(self, nbytes: int) -> Any:
        """A body of so many bytes that means nothing."""

    def encode(self, vector: Any, codec: Codec, seed: int) -> Any:
        """The body that a codec sends."""

    def decode(self, body: Any, codec: Codec, length: int) -> Any:
        """What is left of a vector of `length` elements."""


class OnTensors:
    """Of torch, of the type and on the device of the `initial` parameters, shape (n,)."""

    def __init__(self, initial: Any, room: Callable[[Any], Any] = lambda vector: None) -> None:
        """room: where another vector like one is to be written; None: anywhere."""
        import torch

        from lockstep.workloads import codecs
        from lockstep.workloads.streams import accelerated, finished

        self.initial, self.itemsize = initial, initial.itemsize
        self.finish = partial(finished, initial) if accelerated(initial.device) else None
        self._torch, self._codecs, self._room = torch, codecs, room

    def vector(self, values: Sequence[float]) -> Any:  # noqa: D102
        return self.initial.new_tensor(values)

    def concatenate(self, parts: Sequence[Any]) -> Any:  # noqa: D102
        return parts[0] if len(parts) == 1 else self._torch.cat(list(parts))

    def to_send(self, vector: Any) -> Any:  # noqa: D102
        room = self._room(vector)
        return vector if room is None else room.copy_(vector)

    def add(self, vector: Any, other: Any) -> Any:  # noqa: D102
        part = multiple(other)
        return self._torch.add(vector, part.vector, alpha=part.factor, out=self._room(vector))

    def add_parts(self, vector: Any, slices: Sequence[slice], parts: Sequence[Any]) -> Any:
        """Sums are made where they are to be: one pass over the memory, rounded once."""
        total = self._torch.empty_like(vector)
        for place, part in zip(slices, map(multiple, parts), strict=True):
            self._torch.add(vector[place], part.vector, alpha=part.factor, out=total[place])
        return total

    def blank(self, nbytes: int) -> Any:  # noqa: D102
        return self.initial.new_zeros(nbytes, dtype=self._torch.uint8)

    def encode(self, vector: Any, codec: Codec, seed: int) -> Any:  # noqa: D102
        return self._codecs.encode(vector, codec, seed)

    def decode(self, body: Any, codec: Codec, length: int) -> Any:  # noqa: D102
        return self._codecs.decode(body, codec, length, self.initial.dtype)


class OnSizes:
    """Of vectors that know nothing but their sizes."""

    finish = None

    def __init__(self, length: int, itemsize: int, kind: type[Sized] = Sized) -> None:
        self.initial, self.itemsize = kind(length, itemsize), itemsize

    def vector(self, values: Sequence[float]) -> Sized:  # noqa: D102
        return Sized(len(values), self.initial.itemsize)

    def concatenate(self, parts: Sequence[Any]) -> Any:  # noqa: D102
        return parts[0] if len(parts) == 1 else concatenate(list(parts))

    def to_send(self, vector: Any) -> Any:  # noqa: D102
        return vector

    def add(self, vector: Any, other: Any) -> Any:  # noqa: D102
        return vector + other

    def add_parts(self, vector: Any, slices: Sequence[slice], parts: Sequence[Any]) -> Any:  # noqa: D102
        return self.concatenate([vector[place] + part for place, part in zip(slices, parts, strict=True)])

    def blank(self, nbytes: int) -> Sized:  # noqa: D102
        return Sized(nbytes, 1)

    def encode(self, vector: Any, codec: Codec, seed: int) -> Sized:
        """As many bytes."""
        nbytes = layouts.nbytes(codec, len(vector), vector.itemsize)
        if codec.name == "outer":
            return Sized(codec.numbers(len(vector)), vector.itemsize)
        return Sized(len(vector), nbytes // len(vector)) if codec.sums and nbytes else Sized(nbytes, 1)

    def decode(self, body: Any, codec: Codec, length: int) -> Sized:
        """Raises ValueError where the body is not as long as that codec's."""
        if body.nbytes != layouts.nbytes(codec, length, self.initial.itemsize):
            raise ValueError(f"{body.nbytes} bytes are not {length} elements as {codec.name} sends them")
        return Sized(length, self.initial.itemsize)
