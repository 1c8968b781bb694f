"""What a vector becomes on the wire: fewer bytes, and less precision.

A codec's own arithmetic is the engine's (`node.encode`, `node.decode`); what each codec sends, and what it
loses, is in docs/strategies.md.
"""

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, get_args

from lockstep.strategies.bounds import Fraction, Rate
from lockstep.strategies.marks import BelongsTo

if TYPE_CHECKING:
    from random import Random

    from lockstep.strategies.node import Node, Vector

Name = Literal["none", "fp16", "bf16", "int8", "e3m0", "2-bit", "1-bit", "top-k", "random-k"]
NAMES: tuple[Name, ...] = get_args(Name)
PushName = Literal[Name, "capped", "rows", "outer"]  # of pushes to servers alone: files of their names
PUSHED: tuple[PushName, ...] = (*NAMES, "capped", "rows", "outer")
SUMMABLE: tuple[Name, ...] = ("none", "fp16", "bf16")  # a body is a vector of numbers: sums are encoded too
INDEX = 4  # bytes of the place of an element
_SPARSE: tuple[Name, ...] = ("top-k", "random-k")
Ratio = Annotated[Fraction, BelongsTo("codec", _SPARSE), BelongsTo("answer_codec", _SPARSE)]
Feedback = Annotated[bool, BelongsTo("codec", NAMES[1:])]
PushFeedback = Annotated[bool, BelongsTo("codec", (*NAMES[1:], "capped"))]  # the others lose nothing
Threshold = Annotated[Rate, BelongsTo("codec", ("2-bit",)), BelongsTo("answer_codec", ("2-bit",))]


class Codec(NamedTuple):
    """`name` is one of PUSHED; `ratio` is the fraction of the elements that top-k and random-k send.

    `threshold`: what 2-bit sends of an element, with its sign, if it is as large.
    """

    name: str
    ratio: float = 0.01
    threshold: float = 0.5
    rank: int = 0  # of outer: of a matrix with so many columns
    columns: int = 1

    def numbers(self, length: int) -> int:
        """How many numbers of the vector's own type none and outer send."""
        return self.rank * (length // self.columns + self.columns) if self.name == "outer" else length

    @property
    def sums(self) -> bool:
        """Whether bodies can be cut and added as they are: they are vectors, of a narrower type."""
        return self.name in SUMMABLE

    def of(self, body: "Vector", vector: "Vector") -> "Codec":
        """What a body is in, that is sent for such a vector: `capped` decides it for each message."""
        if self.name != "capped":
            return self
        if body.nbytes == vector.nbytes:
            return Codec("none")
        return Codec("top-k", body.nbytes // (INDEX + vector.nbytes // len(vector)) / len(vector))

    def seed(self, rng: "Random") -> int:
        """64 bits that random-k chooses elements by; the other codecs draw nothing, and get 0."""
        return rng.getrandbits(64) if self.name == "random-k" else 0


class Encoder:
    """One sender's stream of vectors of one length, such as the pushes of one part of the parameters.

    With error feedback (Seide et al. 2014; Stich et al. 2018, algorithm 1) what a message loses is added to
    the next vector, v = x + r and r ← v − decoded: what has been decoded and the residual r add up to what
    was put in.
    """

    def __init__(self, node: "Node", codec: Codec, error_feedback: bool = True) -> None:
        self.node = node
        self.codec = codec
        self.error_feedback = error_feedback
        self.residual: Vector | None = None  # None: nothing has been lost yet

    async def encode(self, vector: "Vector") -> "Vector":
        """The body to send; the vector itself if the codec is none."""
        if self.codec.name == "none":
            return vector
        if self.residual is not None:
            vector = vector + self.residual
        body = await self.node.encode(vector, self.codec)
        if self.error_feedback:
            self.residual = vector - await decode(self.node, body, self.codec, len(vector))
        return body


async def decode(node: "Node", body: "Vector", codec: Codec, length: int) -> "Vector":
    """What has come of a vector of `length` elements; the body itself if the codec is none."""
    return body if codec.name == "none" else await node.decode(body, codec, length)
