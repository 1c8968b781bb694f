"""How a model is split over the devices of a replica: `parallelism`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from lockstep.scenarios.section import Count, Section, any_of, divisors, one_of
from lockstep.scenarios.units import fail, shown

Axis = Literal["tensor", "pipeline", "data"]
_BY = ("flops", "parameters", "time", "memory")
Layers = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)]


class By(Section):
    """The model is cut so that the largest stage is as small as can be, `by` what its layers say."""

    by: Literal["flops", "parameters", "time", "memory"] = Field(
        description="flops, parameters, time or memory, such as 'by: time'"
    )


def _cut(data: Any) -> type[Section] | None:
    if isinstance(data, dict):
        return By
    many = isinstance(data, list | tuple)
    wrong = [each for each in data if type(each) is not int or each < 1] if many else [data]
    if wrong:
        problem = f"must be {{by: {' | '.join(_BY)}}} or a list of layer numbers, from 1 on, that rise"
        fail(f"{problem}; not {'a list with ' * many}{shown(wrong[0])}")
    return None


def layers_to_list(pieces: int) -> str:
    """What `cut` must be, if it is a list."""
    if pieces == 1:
        return "must be left out: the model is in one piece"
    numbers = "1 layer number" if pieces == 2 else f"{pieces - 1} layer numbers"
    return f"must list {numbers}: the first layer of each piece but the first ({pieces} pieces)"


class Parallelism(Section):
    """`tensor` · `pipeline` consecutive workers are one replica of the model: stages of its layers, in which
    each layer is cut between `tensor` devices (docs/tensor.md).

    A stage does its passes of `micro_batches` parts of a mini-batch (as many as there are stages, unless
    given) in an `order` (docs/pipelines.md). `chunks`: pieces of the model that each stage holds, which the
    order "interleaved" can do. `recompute`: a stage keeps only its inputs, and computes forward again before
    it computes backward. `axes`: what is next to what, from the inside: replicas are of consecutive workers
    by default.
    `cut`: {by: flops, parameters, time or memory}, or the number of the first layer of each stage but the
    first.
    With one stage, `micro_batches` is gradient accumulation.
    `sequence`: what `tensor` does not cut is cut by position in the sequence. `convolutions`: what devices
    send for a convolution: sums of channels (all-reduce), channels (all-gather) or rows of pixels (halo).
    `redundancy`: on how many devices of a `tensor` group each part of a layer is, so that as many times fewer
    have to meet.
    """

    mistaken: ClassVar[Mapping[str, str]] = {"stages": "pipeline", "microbatches": "micro_batches"}
    pipeline: Count = 1
    tensor: Count = 1
    sequence: bool = False
    convolutions: Literal["all-reduce", "all-gather", "halo"] = "all-reduce"
    redundancy: Count = 1
    order: Literal["1f1b", "gpipe", "interleaved", "zero-bubble"] = "1f1b"
    micro_batches: Count | None = None
    chunks: Count = 1
    recompute: bool = False
    axes: tuple[Axis, Axis, Axis] = Field(("tensor", "pipeline", "data"), strict=False)
    cut: Annotated[By | Layers, one_of(_cut)] = By(by="flops")

    @field_validator("axes", mode="before")
    @classmethod
    def _each_axis_once(cls, data: Any) -> Any:
        axes = list(get_args(Axis))
        if not isinstance(data, list | tuple) or sorted(map(str, data)) != sorted(axes):
            said = f"[{', '.join(map(str, data))[:60]}]" if isinstance(data, list | tuple) else shown(data)
            problem = "must list tensor, pipeline and data, each once, innermost first, such as"
            fail(f"{problem} [{', '.join(axes)}]; not {said}")
        return data

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if self.tensor % self.redundancy:
            valid = any_of(divisors(self.tensor), self.redundancy)
            fail(f"must divide tensor ({self.tensor}): {valid}; not {self.redundancy}", "redundancy")
        if self.sequence and self.parts == 1:
            fail("needs layers that are cut; give tensor more than redundancy, or remove it", "sequence")
        pieces = self.pipeline * self.chunks
        if not isinstance(self.cut, By) and len(self.cut) != pieces - 1:
            fail(f"{layers_to_list(pieces)}; not {len(self.cut)}", "cut")
        return self

    @property
    def by(self) -> Literal["flops", "parameters", "time", "memory"] | tuple[int, ...]:
        """What the model is cut by, or where."""
        return self.cut.by if isinstance(self.cut, By) else self.cut

    @property
    def parts(self) -> int:
        """Into how many parts a layer is cut."""
        return self.tensor // self.redundancy

    @property
    def devices(self) -> int:
        """Of a replica."""
        return self.pipeline * self.tensor
