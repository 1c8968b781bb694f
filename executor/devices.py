"""Which device a worker computes on, and which collective backend the workers share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor, device


class Place(NamedTuple):
    """Where a process runs, and how many GPUs that host has."""

    host: str  # its name, and after a slash what else tells it from others of that name
    gpus: int


def choose(places: Sequence[Place], worker: int, over_tcp: bool = False) -> tuple[str, str]:
    """(device of the worker, backend of all): `places` of the workers, in the order of their ranks.

    NCCL wants a GPU of its own for every worker. With fewer GPUs than workers they share them, and talk
    over the CPU; without a GPU everything is on the CPU. So they do if they have to talk `over_tcp`: NCCL
    would not use a testbed's network, but what is between the GPUs.
    """
    neighbours = [w for w, place in enumerate(places) if place.host == places[worker].host]
    own = all(place.gpus >= sum(other.host == place.host for other in places) for place in places)
    gpus = places[worker].gpus
    device = f"cuda:{neighbours.index(worker) % gpus}" if gpus else "cpu"
    return device, "nccl" if own and not over_tcp else "gloo"


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
