"""How a model is split over the devices of a replica: `parallelism`."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from lockstep.scenarios.section import Count, Section, one_of
from lockstep.scenarios.units import fail, shown

Axis = Literal["tensor", "pipeline", "data"]
_BY = ("flops", "parameters", "time", "memory")


Layers = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)]


class By(Section):
    """The model is cut so that the largest stage is as small as can be, `by` what its layers say."""

    by: Literal["flops", "parameters", "time", "memory"]


def _cut(data: Any) -> type[Section] | None:
    if isinstance(data, str):
        fail(f"must be {{by: {' | '.join(_BY)}}} or the numbers of layers, not {shown(data)}")
    return By if isinstance(data, dict) else None


class Parallelism(Section):
    """`pipeline` consecutive workers are one replica of the model, a stage of its layers each.

    A stage does its passes of `micro_batches` parts of a mini-batch (as many as there are stages, unless
    given) in an `order` (docs/pipelines.md). `chunks`: pieces of the model that each stage holds, which the
    order "interleaved" can do. `recompute`: a stage keeps only its inputs, and computes forward again before
    it computes backward. `axes`: what is next to what, from the inside: replicas are of consecutive workers
    by default.
    `cut`: {by: flops, parameters, time or memory}, or the number of the first layer of each stage but the
    first.
    With one stage, `micro_batches` is gradient accumulation.
    """

    pipeline: Count = 1
    tensor: Count = 1
    order: Literal["1f1b", "gpipe", "interleaved", "zero-bubble"] = "1f1b"
    micro_batches: Count | None = None
    chunks: Count = 1
    recompute: bool = False
    axes: tuple[Axis, Axis, Axis] = Field(("tensor", "pipeline", "data"), strict=False)
    cut: Annotated[By | Layers, one_of(_cut)] = By(by="flops")

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if self.tensor > 1:
            fail("layers cannot be split yet; must be 1 (pipeline splits the model between layers)", "tensor")
        if len({*self.axes}) < len(self.axes):
            fail("must name tensor, pipeline and data once each", "axes")
        if self.chunks > 1 and self.order != "interleaved":
            fail(f"only the order interleaved does several; {self.order} has 1", "chunks")
        pieces = self.pipeline * self.chunks
        if not isinstance(self.cut, By):
            if len(self.cut) != pieces - 1:
                problem = f"must have {pieces - 1} numbers, one less than there are pieces"
                fail(f"{problem}, not {len(self.cut)}", "cut")
            if sorted({*self.cut}) != [*self.cut]:
                fail("must be numbers of layers that increase", "cut")
        return self

    @property
    def by(self) -> Literal["flops", "parameters", "time", "memory"] | tuple[int, ...]:
        """What the model is cut by, or where."""
        return self.cut.by if isinstance(self.cut, By) else self.cut

    @property
    def devices(self) -> int:
        """Of a replica."""
        return self.pipeline * self.tensor
