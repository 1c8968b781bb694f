"""What is learned, or how big it is: `workload`."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, TypeAdapter, model_validator

from lockstep.scenarios.library import Preset, needs
from lockstep.scenarios.section import Count, Factor, Section, nearest, one_of
from lockstep.scenarios.units import fail, shown


class _Batches(Section):
    preset: Preset = None
    batch_size: int = Field(32, ge=1, le=10**9)
    learning: bool | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> Any:
        schema = super().__get_pydantic_json_schema__(core, handler)
        return needs(schema, ["preset"], schema.get("required", []))

    @property
    def learns(self) -> bool:
        """Whether gradients are real; they are unless `learning` is false or there are only sizes."""
        return self.learning is not False


def _whole(value: Any) -> Any:
    """350e6 is a whole number, whatever YAML calls it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Sizes(_Batches):
    """Sizes only: `parameters` values of `dtype` and `flops` per sample; nothing is learned."""

    parameters: Annotated[int, Field(ge=1, le=10**15), BeforeValidator(_whole)]
    dtype: Literal["float16", "bfloat16", "float32", "float64"] = "float32"
    flops: Annotated[float, Field(ge=1, le=1e24)] | None = None
    learning: Literal[False] = False


class Dirichlet(Section):
    """The shares that the workers have of each label are drawn from a Dirichlet distribution.

    `dirichlet` is its concentration: near 0 every label is one worker's, above 100 shares are nearly even.
    """

    dirichlet: Factor


class Labels(Section):
    """Each worker has samples of about so many labels: of one such number of pieces sorted by label."""

    labels: Count


_PARTITIONS: dict[str, type[Section]] = {"dirichlet": Dirichlet, "labels": Labels}


def _partition(data: Any) -> type[Section] | None:
    if data == "iid":
        return None
    if not isinstance(data, dict) or len(data) != 1:
        fail(f"must be iid, {{dirichlet: 0.5}} or {{labels: 2}}, not {shown(data)}")
    (key,) = data
    if key not in _PARTITIONS:
        fail(f"unknown key{nearest(key, _PARTITIONS)}", key)
    return _PARTITIONS[key]


Partition = Annotated[Literal["iid"] | Dirichlet | Labels, one_of(_partition)]


class Data(_Batches):
    """`model` learns `dataset` by mini-batches of `batch_size` samples, dealt out as `partition` says."""

    dataset: Literal["digits", "mnist", "fashion-mnist", "cifar10", "fake"]
    model: str = Field("mlp", min_length=1)
    partition: Partition = "iid"


class Problem(_Batches):
    """A problem with a known optimum in `dimension` parameters; `noise` scales that of its gradients.

    `partition`: how the samples of the logistic one are dealt out; `density`: the fraction of their features
    that is not zero.
    """

    problem: Literal["quadratic", "logistic"]
    dimension: int = Field(20, ge=1, le=10**9)
    noise: float = Field(0.1, ge=0, le=1e6)
    partition: Partition = "iid"
    density: float = Field(1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _has_samples(self) -> Self:
        if self.problem == "quadratic" and self.partition != "iid":
            fail("must be iid: the quadratic has no samples to deal out", "partition")
        if self.problem == "quadratic" and self.density != 1:
            fail("must be 1: the quadratic has no samples with features", "density")
        return self

    @property
    def features(self) -> int:
        """How many features of a sample are not zero."""
        return max(1, round(self.density * self.dimension))


_FORMS: dict[str, type[Section]] = {"parameters": Sizes, "dataset": Data, "problem": Problem}


def _workload(data: Any) -> type[Section]:
    forms = "exactly one of parameters (sizes only), dataset and problem"
    if not isinstance(data, dict):
        fail(f"must be a preset's name, or a mapping with {forms}; not {shown(data)}")
    found = [key for key in _FORMS if key in data]
    if len(found) != 1:
        fail(f"must have {forms}; it has {', '.join(found or map(str, data))[:60] or 'no key'}")
    return _FORMS[found[0]]


Workload = Annotated[Sizes | Data | Problem, one_of(_workload)]
_workloads: TypeAdapter[Workload] = TypeAdapter(Workload)


def valid_workload(document: Any, context: dict[str, Any]) -> Section:
    """Return the workload that a document says. Raises ValidationError."""
    return _workloads.validate_python(document, context=context)
