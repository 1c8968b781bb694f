"""Which device a worker computes on, and which collective backend the workers share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:
    from torch import Tensor, device


class Place(NamedTuple):
    """Where a process runs, and which GPUs it sees."""

    host: str  # its name, and after a slash what else tells it from others of that name
    gpus: tuple[str, ...] = ()  # by UUID: indices say nothing where processes see different ones


Wanted = Literal["auto", "cpu", "cuda"]


def require(wanted: Wanted) -> None:
    """Raise `ScenarioError` for a GPU that is asked for, where there is none."""
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        problem = "must be auto or cpu: there is no GPU here that torch can use"
        raise ScenarioError(problem, key="cluster.device")


def visible(wanted: Wanted = "auto") -> tuple[str, ...]:
    """The GPUs that this process sees and may use, by UUID."""
    import torch

    many = 0 if wanted == "cpu" else torch.cuda.device_count()
    return tuple(str(torch.cuda.get_device_properties(number).uuid) for number in range(many))


def choose(places: Sequence[Place], worker: int, over_tcp: bool = False) -> tuple[str, str]:
    """(device of the worker, backend of all): `places` of the workers, in the order of their ranks.

    NCCL wants a GPU of its own for every worker. With fewer GPUs than workers they share them, and talk
    over the CPU; without a GPU everything is on the CPU. So they do if they have to talk `over_tcp`: NCCL
    would not use a testbed's network, but what is between the GPUs.
    """
    index, gpus = _taken(places, worker), _gpus(places)
    own = None not in gpus and len({*gpus}) == len(gpus)
    return f"cuda:{index}" if places[worker].gpus else "cpu", "nccl" if own and not over_tcp else "gloo"


def sharing(places: Sequence[Place], worker: int) -> list[int]:
    """The workers that have the same GPU as one, itself among them; nobody where it has none."""
    gpus = _gpus(places)
    return [other for other, gpu in enumerate(gpus) if gpu is not None and gpu == gpus[worker]]


def _taken(places: Sequence[Place], worker: int) -> int:
    """Which of the GPUs that it sees a worker takes: those who see the same take them in turn."""
    alike = [other for other, place in enumerate(places) if place == places[worker]]
    return alike.index(worker) % max(1, len(places[worker].gpus))


def _gpus(places: Sequence[Place]) -> list[str | None]:
    return [place.gpus[_taken(places, w)] if place.gpus else None for w, place in enumerate(places)]


def use(device: "device") -> None:
    """Let this thread compute there: one that begins to use a GPU without a word uses the first."""
    import torch

    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index or 0)


def settle(device: "device") -> None:
    """Wait until a device has done all that it was told to: what is timed next is then timed alone."""
    import torch

    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def computes_on(device: str) -> str:
    """A device, and what else the last bits of a sum may depend on."""
    import torch

    return f"{device} {torch.backends.cpu.get_cpu_capability()} torch {torch.__version__}"


def to_host(vector: "Tensor") -> "Tensor":
    """The vector in the host's memory: itself, or a pinned copy of a GPU's, made by the current stream.

    What other streams compute, such as the rest of a gradient, goes on meanwhile.
    """
    if not vector.is_cuda:
        return vector
    import torch

    host = torch.empty_like(vector, device="cpu", pin_memory=True)
    host.copy_(vector, non_blocking=True)
    torch.cuda.current_stream(vector.device).synchronize()
    return host


def to_device(vector: "Tensor", device: "device") -> "Tensor":
    """A vector in the host's memory on a device: itself, or a copy that the GPU makes from pinned memory."""
    return vector.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else vector
