"""How much memory a workload takes, and how much there is. Loads no torch and no data."""

from math import inf, prod
from pathlib import Path

from lockstep.scenarios import ScenarioError, Workload
from lockstep.scenarios import workload as described
from lockstep.workloads.base import Sizes
from lockstep.workloads.forms import form
from lockstep.workloads.sizes import LOGISTIC_HELD_OUT, LOGISTIC_SAMPLES

_VECTORS = 4  # parameters, gradient, the model's own weights, what is on its way
_BYTES_PER_FLOP = 0.03  # of activations, kept for the backward pass: 0.01 to 0.05 in cnn, resnet18, mobilenet
_WHILE_NORMALISED = 7  # times the data set, of float32: it, and three of float64 at once (datasets.load)


def bytes_of(workload: Workload, its: Sizes, vectors: int | None = None) -> int:
    """Return about how many bytes a process needs at most for a workload: data set, model and mini-batch.

    What every process has for itself, Python and torch, is not included; nor what a strategy keeps besides
    (an optimizer's state, models of others): multiples of `its.nbytes`. Where nothing is learned there are
    only the vectors that travel. `its`: what `sizes` says of the workload; `vectors`: bytes of all vectors,
    if they are known.
    """
    vectors = _VECTORS * its.nbytes if vectors is None else vectors
    if not workload.learns:
        return vectors
    match workload:
        case described.Data() | described.Transformer():
            data = data_bytes(workload)
            mini_batch = int(_BYTES_PER_FLOP * (its.flops or 0.0))
            return max(_WHILE_NORMALISED * data, data + vectors + mini_batch)
        case described.UserTask():
            return data_bytes(workload) + vectors + its.kept
        case described.Problem(problem="logistic"):
            each = 16  # while they are drawn: float64, and what is made of them
            features = (LOGISTIC_SAMPLES + LOGISTIC_HELD_OUT) * workload.dimension
            return each * features + vectors
        case _:
            return vectors + 8 * its.parameters  # noise is drawn in float64


def data_bytes(workload: Workload) -> int:
    """Return the bytes of a data set that lies on the device as a whole; 0 for one that is read."""
    if not workload.learns:
        return 0
    match workload:
        case described.Data() | described.Transformer():
            its_form = form(workload)
            return 4 * (its_form.train + its_form.test) * prod(its_form.shape)
        case described.UserTask():
            from lockstep.workloads import tasks

            return tasks.look(workload).nbytes
        case described.Problem(problem="logistic"):
            return 4 * (LOGISTIC_SAMPLES + LOGISTIC_HELD_OUT) * workload.dimension
        case _:
            return 0


def free_bytes() -> float:
    """Return the bytes that this machine, or the container, can still give."""
    import psutil  # which takes its time

    return min(float(psutil.virtual_memory().available), _of_the_container())


def _of_the_container(group: Path = Path("/sys/fs/cgroup")) -> float:
    try:
        most, used = ((group / f"memory.{name}").read_text("ascii").strip() for name in ("max", "current"))
        cache = next(
            int(line.split()[1])
            for line in (group / "memory.stat").read_text("ascii").splitlines()
            if line.startswith("inactive_file ")
        )
    except (OSError, StopIteration):
        return inf
    return inf if most == "max" else float(most) - float(used) + cache


def require(nbytes: float, what: str, key: str, instead: str) -> None:
    """Raise ScenarioError if there is no room for so many bytes: `what` takes them, `instead` would do."""
    free = free_bytes()
    if nbytes > free:
        problem = f"{what} takes {nbytes / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB is free"
        raise ScenarioError(f"{problem}; {instead}", key=key)
