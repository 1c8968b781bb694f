"""Servers as key-value stores: a worker pushes and pulls only those rows that its mini-batches touch.

Li et al. 2014, "Scaling distributed machine learning with the parameter server", §3.1 (ranges of keys; from
memory); MXNet's row-sparse weights. A push has the gradients of the rows of the mini-batch it is of, and the
numbers of the rows that the next one touches: the answer has those. A body is one vector: how many rows,
their numbers, their elements, and then, in a push, the numbers of those asked for, all as numbers of four
bytes. The first answer, to a pull, has all rows.
"""

from collections.abc import Sequence
from typing import Any

from lockstep.strategies.codecs import Codec, Encoder
from lockstep.strategies.node import Message, Node, Vector
from lockstep.strategies.parts import Part

LARGEST = 2**24  # whole numbers up to it are float32


class Rows:
    """The rows of a part of the parameters; of one that is cut, the part has a piece."""

    def __init__(self, node: Node, part: Part) -> None:
        self.node = node
        self.places: dict[int, slice] = {}  # in the part, by the row's number
        inside, row, rows = 0, 0, node.rows
        for run in part:
            while row < len(rows) and rows[row].stop <= run.start:
                row += 1
            while row < len(rows) and rows[row].start < run.stop:
                first, last = max(rows[row].start, run.start), min(rows[row].stop, run.stop)
                self.places[row] = slice(first - run.start + inside, last - run.start + inside)
                if rows[row].stop > run.stop:
                    break
                row += 1
            inside += run.stop - run.start

    def packed(self, vector: Vector, numbers: Sequence[int], asked: Sequence[int] = ()) -> Vector:
        """A body with those of these rows that the part has, and the numbers of those asked for."""
        ours = [number for number in numbers if number in self.places]
        head = self.node.vector([len(ours), *ours])
        tail = [self.node.vector(theirs)] if (theirs := [n for n in asked if n in self.places]) else []
        return self.node.concatenate([head, *(vector[self.places[number]] for number in ours), *tail])

    def put(self, body: Vector, vector: Vector) -> tuple[Vector, list[int]]:
        """The vector with the rows of a body in their places, and the numbers that were asked for."""
        end = 1 + int(body[:1].tolist()[0])
        pieces: list[Any] = []
        before, at = 0, end
        for number in map(int, body[1:end].tolist()):
            place = self.places[number]
            pieces += [vector[before : place.start], body[at : at + place.stop - place.start]]
            before, at = place.stop, at + place.stop - place.start
        pieces.append(vector[before:])
        return self.node.concatenate(pieces), [int(number) for number in body[at:].tolist()]


class RowEncoder(Encoder):
    """A worker's stream of gradients of a part: of each the rows that mini-batches since the last touched."""

    def __init__(self, node: Node, rows: Rows) -> None:
        super().__init__(node, Codec("rows"), error_feedback=False)
        self.rows, self.step = rows, 0

    async def encode(self, vector: Vector) -> Vector:
        """The rows, and which ones are wanted."""
        steps = range(self.step, self.node.step)
        self.step = steps.stop
        numbers = sorted({number for step in steps for number in self.node.touched(step)})
        return self.rows.packed(vector, numbers, self.node.touched(steps.stop))


class Store:
    """A server's part of the parameters by rows, and which of them each worker has asked for."""

    def __init__(self, node: Node, part: Part, parameters: Any) -> None:
        self.rows, self.zero = Rows(node, part), 0.0 * parameters
        self.asked: dict[int, list[int]] = {}

    def take_in(self, push: Message) -> Vector:
        """A pushed gradient, zero where nothing was pushed."""
        assert push.body is not None
        gradient, self.asked[push.sender] = self.rows.put(push.body, self.zero)
        return gradient

    def answer(self, worker: int, parameters: Vector) -> Vector:
        """What a worker has asked for; all, if it has not said."""
        if worker not in self.asked:
            return parameters
        return self.rows.packed(parameters, self.asked[worker])
