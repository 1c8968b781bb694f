"""Gradients of fully connected layers as outer products: two thin matrices in the place of their product.

Of an M × N layer and K samples the gradient is a sum of K products of an error and an activation. Workers
send K·(M + N) numbers instead of M·N, and the server multiplies: Chilimbi et al. 2014, "Project Adam", §4
(from memory); sufficient factors (Xie et al. 2016; Poseidon). What is sent here is another pair of that size
with the same product, to rounding: a basis of the columns, and the gradient in that basis.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lockstep.strategies.codecs import Codec, Encoder, decode
from lockstep.strategies.node import Node, Vector
from lockstep.strategies.parts import Part


class Matrix(NamedTuple):
    """A weight of shape (rows, columns), where it lies, and the rank that its gradient has at most."""

    place: slice
    rows: int
    columns: int
    rank: int

    @property
    def codec(self) -> Codec:
        """What its gradient is sent in: nothing, if two thin matrices are not smaller."""
        smaller = self.rank * (self.rows + self.columns) < self.rows * self.columns
        return Codec("outer", rank=self.rank, columns=self.columns) if smaller else Codec("none")


def pieces(matrices: Sequence[Matrix], part: Part) -> Iterator[tuple[int, Codec]]:
    """The lengths of the pieces of a part, end to end, and what each is sent in; of a cut matrix as it is."""
    for run in part:
        at = run.start
        for matrix in matrices:
            if matrix.place.start >= at and matrix.place.stop <= run.stop:
                yield matrix.place.start - at, Codec("none")
                yield matrix.place.stop - matrix.place.start, matrix.codec
                at = matrix.place.stop
        yield run.stop - at, Codec("none")


class OuterEncoder(Encoder):
    """A worker's stream of gradients of a part."""

    def __init__(self, node: Node, part: Part) -> None:
        super().__init__(node, Codec("outer"), error_feedback=False)
        self.pieces = list(pieces(node.matrices, part))

    async def encode(self, vector: Vector) -> Vector:
        """The vector with two thin matrices in the place of each product that is larger."""
        sent, at = [], 0
        for length, codec in self.pieces:
            piece, at = vector[at : at + length], at + length
            sent.append(piece if codec.name == "none" else await self.node.encode(piece, codec))
        return self.node.concatenate(sent)


class Products:
    """A server's side: what was pushed, multiplied out."""

    def __init__(self, node: Node, part: Part) -> None:
        self.node, self.pieces = node, list(pieces(node.matrices, part))

    async def take_in(self, body: Vector) -> Vector:
        """The gradient of the part."""
        found, at = [], 0
        for length, codec in self.pieces:
            sent = codec.numbers(length)
            found.append(await decode(self.node, body[at : at + sent], codec, length))
            at += sent
        return self.node.concatenate(found)
