"""What a vector becomes on the wire: fewer bytes, and fewer bits of truth."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from strategies.node import Node, Vector

Name = Literal["none", "fp16", "bf16", "int8", "1-bit", "top-k", "random-k"]


class Codec(NamedTuple):
    """`ratio` is the fraction of the elements that top-k and random-k send."""

    name: str
    ratio: float = 0.01


class Encoder:
    """One stream of messages: with error feedback it adds to each vector what was left out of the last one.

    v = u + r is encoded and r ← v − what is left of v (Seide et al. 2014, §3.1).
    """

    def __init__(self, node: "Node", codec: Codec, error_feedback: bool) -> None:
        self.node = node
        self.codec = codec
        self.error_feedback = error_feedback
        self.residual: Any = 0.0

    def encode(self, vector: "Vector") -> "Vector":
        """The body to send for a vector of shape (n,)."""
        if self.error_feedback:
            vector = vector + self.residual
        body = self.node.encode(vector, self.codec)
        if self.error_feedback:
            self.residual = vector - self.node.decode(body, self.codec, len(vector))
        return body
