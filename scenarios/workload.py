"""What is learned, or how big it is: `workload`."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    TypeAdapter,
    ValidationInfo,
    model_validator,
)

from lockstep.scenarios import profile as profiles
from lockstep.scenarios.code import Code, located
from lockstep.scenarios.library import Preset, find, needs
from lockstep.scenarios.problem import ScenarioError
from lockstep.scenarios.section import Count, Factor, Section, did_you_mean, nearest, one_of
from lockstep.scenarios.units import Size, fail, shown

Precision = Literal["float32", "bf16", "fp16"]


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

    @property
    def has_epochs(self) -> bool:
        """Whether there is a training set, which has an end."""
        return False

    @property
    def synchronised(self) -> bool:
        """Whether batches are normalised over all replicas."""
        return False

    @property
    def masks_by_sample(self) -> bool:
        """Whether what dropout drops is drawn for each sample."""
        return False

    @property
    def computed_in(self) -> Precision:
        """What products of a gradient are computed in."""
        return "float32"

    @property
    def readers(self) -> int:
        """Processes that read each worker's mini-batches; 0: the worker does."""
        return 0

    @property
    def compiles(self) -> bool:
        """Whether torch.compile makes kernels of the model."""
        return False


def _found(name: str, info: ValidationInfo) -> str:
    """The file of a profile, or of a shipped one."""
    try:
        return str(find(name, "profiles", Path((info.context or {}).get("folder", "."))))
    except ScenarioError as error:
        fail(error.problem)


_Profile = Annotated[str, AfterValidator(_found)]


def _whole(value: Any) -> Any:
    """350e6 is a whole number, whatever YAML calls it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Sizes(_Batches):
    """Sizes only: `parameters` values of `dtype` and `flops` per sample; nothing is learned.

    Where the model is split it has equal `layers`, as many as there are stages if that is not given;
    `activation` is how much a whole mini-batch sends on from each to the next. `mixed`: trained in mixed
    precision, so that what is computed with and sent has 2 bytes an element, and the optimizer keeps the
    parameters in float32 besides.
    """

    parameters: Annotated[int, Field(ge=1, le=10**15), BeforeValidator(_whole)]
    dtype: Literal["float16", "bfloat16", "float32", "float64"] = "float32"
    mixed: bool = False
    flops: Annotated[float, Field(ge=1, le=1e24)] | None = None
    layers: Count | None = None
    activation: Size | None = None
    learning: Literal[False] = False

    @property
    def element(self) -> str:
        """The type of what is computed with and sent: `dtype`, but of 2 bytes in mixed precision."""
        return "bfloat16" if self.mixed and self.dtype != "float16" else self.dtype

    @model_validator(mode="after")
    def _in_two_precisions(self) -> Self:
        if self.mixed and self.dtype == "float64":
            fail("must be float32, bfloat16 or float16 with mixed: true, not float64", "dtype")
        return self

    @model_validator(mode="after")
    def _in_each_layer(self) -> Self:
        if self.layers is not None and self.layers > self.parameters:
            fail(f"must be at most the number of parameters ({self.parameters}), not {self.layers}", "layers")
        return self


class Graph(_Batches):
    """Sizes and times only: the layers of a profile in the format of PipeDream's graph.txt.

    `batch_size` is that of the mini-batches which were measured.
    """

    graph: Annotated[_Profile, Field(description="a file, such as 'graph: graph.txt'")]
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


class _Computed(_Batches):
    """A model whose gradients torch computes.

    `precision`: of what is computed in mixed precision; parameters and gradients are float32. `compile`:
    whether gradients are computed by what torch.compile makes of the model.
    """

    precision: Precision = "float32"
    compile: bool = False

    @property
    def computed_in(self) -> Precision:
        """What products of a gradient are computed in."""
        return self.precision

    @property
    def compiles(self) -> bool:
        """Whether torch.compile makes kernels of the model."""
        return self.compile


class _Learned(_Computed):
    """A model and a data set."""

    partition: Partition = "iid"
    layer_times: _Profile | None = None
    dropout: Literal["micro-batch", "sample"] = "micro-batch"
    batch_norm: Literal["local", "synchronised"] = "local"

    @property
    def has_epochs(self) -> bool:
        """Whether there is a training set, which has an end."""
        return True

    @property
    def synchronised(self) -> bool:
        """Whether batches are normalised over all replicas."""
        return self.batch_norm == "synchronised"

    @property
    def masks_by_sample(self) -> bool:
        """Whether what dropout drops is drawn for each sample."""
        return self.dropout == "sample"


class Data(_Learned):
    """`model` learns `dataset` by mini-batches of `batch_size` samples, dealt out as `partition` says.

    `layer_times`: a profile (docs/calibrate.md) that has the times of the model's layers. `dropout`: what
    masks are drawn for, each micro-batch or each sample; `batch_norm`: whether batches are normalised by what
    a device computes at once, or all replicas (docs/workload.md).
    """

    dataset: Literal["digits", "mnist", "fashion-mnist", "cifar10", "fake"]
    model: str = Field("mlp", min_length=1)

    @property
    def called(self) -> tuple[str, str]:
        """What learns, and on what, in words."""
        return self.model, f" on {self.dataset}"


class UserTask(_Learned):
    """What a function `task: package.module:function` returns for `options` is learned (docs/your-model.md).

    `loaders`: processes of each worker that read its mini-batches ahead; 0: the worker reads them itself.
    `root`: the folder in which the module was found; `content`: the hash of its code, which must be that if
    it is given.
    """

    task: str = Field(description="a function of yours, such as 'task: my_task:digits'")
    options: dict[str, JsonValue] = Field({})
    loaders: Annotated[int, Field(ge=0, le=256)] = 0
    root: str | None = None
    content: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _located(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("task"), str):
            return data
        root, content = data.get("root"), data.get("content")
        context = info.context or {"author": True}
        local = context.get("author") and data["task"].startswith("__main__:")
        if local or not isinstance(root, str | None) or not isinstance(content, str | None):
            return data
        try:
            return data | located(data["task"], root, content, context)
        except ScenarioError as error:
            fail(error.problem, "task")

    @model_validator(mode="after")
    def _timed(self, info: ValidationInfo) -> Self:
        """Note it if the layers' times are of other code; who needs them says what else is wrong."""
        if self.layer_times is not None and not (info.context or {}).get("changed"):
            with suppress(ScenarioError):
                profiles.entry_of(profiles.read(Path(self.layer_times)), self.model_dump())
        return self

    @property
    def called(self) -> tuple[str, str]:
        """What learns, and on what, in words."""
        return self.task, ""

    @property
    def readers(self) -> int:
        """Processes that read each worker's mini-batches; 0: the worker does."""
        return self.loaders

    @property
    def code(self) -> Code:
        """What is called, with which options."""
        return Code(self.task, json.dumps(self.options, sort_keys=True), self.root, self.content)

    def __hash__(self) -> int:
        return hash((self.code, self.batch_size))


class Transformer(_Computed):
    """A decoder-only transformer that learns to continue a text, `sequence` characters a sample.

    It has `layers` blocks of `hidden` channels and `heads` heads; its `vocabulary` is that of the text if
    that is not given. Without a `dataset` it has only its sizes, and nothing is learned. `layer_times` as of
    another model.
    """

    model: Literal["transformer"]
    dataset: Literal["sentences"] | None = None
    layers: int = Field(2, ge=1, le=200)
    hidden: int = Field(64, ge=1, le=2**16)
    heads: int = Field(4, ge=1, le=2**16)
    sequence: int = Field(64, ge=1, le=2**17)
    vocabulary: Annotated[int, Field(ge=1, le=10**7)] | None = None
    partition: Literal["iid"] = "iid"
    layer_times: _Profile | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.hidden % self.heads:
            fail(f"must divide workload.hidden ({self.hidden}), not {self.heads}", "heads")
        if self.dataset is None and self.vocabulary is None:
            fail("missing; give the number of different tokens, or a dataset: sentences", "vocabulary")
        if self.dataset is None and self.precision != "float32":
            fail(f"must be float32 without a dataset, not {self.precision}: nothing is computed", "precision")
        return self

    @property
    def called(self) -> tuple[str, str]:
        """What learns, and on what, in words."""
        return self.model, f" on {self.dataset}" if self.dataset else ""

    @property
    def has_epochs(self) -> bool:
        """Whether there is a training set, which has an end."""
        return self.dataset is not None

    @property
    def learns(self) -> bool:
        """Whether gradients are real; not without a data set."""
        return self.dataset is not None and self.learning is not False


class Problem(_Batches):
    """A problem with a known optimum in `dimension` parameters; `noise` scales that of its gradients.

    `partition`: how the samples are dealt out, of which the quadratic has none; `density`: the fraction of
    the logistic one's features that is not zero; `width`: of the embedding, the numbers in a row.
    """

    problem: Literal["quadratic", "logistic", "embedding"]
    dimension: int = Field(20, ge=1, le=10**9)
    noise: float = Field(0.1, ge=0, le=1e6)
    partition: Partition = "iid"
    density: float = Field(1.0, gt=0, le=1)
    width: int = Field(4, ge=1, le=2**16)

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        if self.problem == "embedding" and self.dimension % (2 * self.width):
            fail(f"must be a multiple of {2 * self.width}: two tables of rows of {self.width}", "dimension")
        if self.problem == "embedding" and self.density != 1:
            fail("must be 1: a sample of the embedding has two rows", "density")
        return self

    @model_validator(mode="after")
    def _has_samples(self) -> Self:
        if self.problem == "quadratic" and self.partition != "iid":
            fail("must be iid: the quadratic has no samples to deal out", "partition")
        if self.problem == "quadratic" and self.density != 1:
            fail("must be 1: the quadratic has no samples with features", "density")
        return self

    @property
    def features(self) -> int:
        """How many numbers a sample has that are not zero: of the embedding, parameters that it is about."""
        if self.problem == "embedding":
            return 2 * self.width
        return max(1, round(self.density * self.dimension))


_FORMS: dict[str, type[Section]] = {
    "parameters": Sizes,
    "graph": Graph,
    "dataset": Data,
    "problem": Problem,
    "task": UserTask,
}


def _workload(data: Any) -> type[Section]:
    forms = "exactly one of parameters (sizes only), graph, dataset, task and problem"
    if isinstance(data, dict) and data.get("model") == "transformer":
        return Transformer
    if not isinstance(data, dict):
        fail(f"must be a preset's name, or a mapping with {forms}; not {shown(data)}")
    found = [key for key in _FORMS if key in data]
    if len(found) != 1:
        known = {name for form in _FORMS.values() for name in form.model_fields}
        meant = [did_you_mean(key, [*_FORMS]) for key in data if key not in known and not found]
        has = ", ".join(found or map(str, data))[:60] or "no key"
        fail(f"must have {forms}; it has {has}{''.join(meant)}")
    return _FORMS[found[0]]


Trained = Data | Transformer | UserTask
Workload = Annotated[Sizes | Graph | Data | Transformer | UserTask | Problem, one_of(_workload)]
_workloads: TypeAdapter[Workload] = TypeAdapter(Workload)


def valid_workload(document: Any, context: dict[str, Any]) -> Section:
    """Return the workload that a document says. Raises ValidationError."""
    return _workloads.validate_python(document, context=context)
