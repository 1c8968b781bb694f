"""Which device a worker computes on, or a server updates on, and which collective backend workers share."""

from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from lockstep.scenarios import Cluster, ScenarioError
from lockstep.workloads.streams import accelerated, finished

if TYPE_CHECKING:
    from torch import Tensor, device


OVER_THE_CPU = "gloo"
"""The collective backend that sums in the host's memory."""


class Place(NamedTuple):
    """Where a process runs, and which GPUs it sees."""

    host: str  # its name, and after a slash what else tells it from others of that name
    gpus: tuple[str, ...] = ()  # by UUID: indices say nothing where processes see different ones
    kind: str = "cuda"  # what torch calls them


Wanted = Literal["auto", "cpu", "cuda"]


def boot() -> str:
    """What tells this host from others of its name, until it is started again."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def asked(cluster: Cluster, of_worker: bool) -> tuple[str, Wanted]:
    """The key that says what workers compute on, or servers and relays, and its value."""
    if of_worker:
        return "cluster.device", cluster.device
    return "cluster.servers.device", cluster.servers.device


def require(key: str, wanted: Wanted) -> None:
    """Raise `ScenarioError` for a GPU that is asked for, where there is none."""
    if wanted != "cuda":  # without torch: a run's fork server is not begun yet
        return
    import torch

    if not torch.cuda.is_available():
        raise ScenarioError("must be auto or cpu: there is no GPU here that torch can use", key=key)


def kind(wanted: Wanted = "auto") -> str:
    """What torch calls the GPUs that this process may use: cuda, xpu, …; cpu if there are none."""
    import torch

    found = torch.accelerator.current_accelerator(check_available=True) if wanted != "cpu" else None
    return "cpu" if found is None or (wanted == "cuda" and found.type != "cuda") else found.type


def visible(wanted: Wanted = "auto") -> tuple[str, ...]:
    """The GPUs that this process sees and may use, by UUID; of a kind that has none, by host and index."""
    import torch

    if (its := kind(wanted)) == "cpu":
        return ()
    module, many = torch.get_device_module(its), torch.accelerator.device_count()
    told = [getattr(module.get_device_properties(number), "uuid", None) for number in range(many)]
    return tuple(str(uuid or f"{boot()}-{number}") for number, uuid in enumerate(told))


def own(wanted: Wanted = "auto") -> str:
    """The device that a process by itself computes on."""
    return choose([Place("here", visible(wanted), kind(wanted))], 0)[0]


def named(device: str) -> str:
    """What its maker calls a device."""
    import torch

    its = torch.device(device)
    return str(torch.get_device_module(its).get_device_name(its.index or 0)) if its.type != "cpu" else "cpu"


def choose(places: Sequence[Place], worker: int, over_tcp: bool = False) -> tuple[str, str]:
    """(device of one, backend of all): `places` of all workers, or servers, in the order of their ranks.

    NCCL, and what others have like it, wants a GPU of its own for every worker. With fewer GPUs than workers
    they share them, and talk over the CPU; without a GPU everything is on the CPU. So they do if they have to
    talk `over_tcp`: NCCL would not use a testbed's network, but what is between the GPUs.
    """
    from torch.distributed import Backend

    index, all_gpus, own = taken(places, worker), gpus(places), places[worker]
    kinds = {place.kind for place in places}
    apart = None not in all_gpus and len({*all_gpus}) == len(all_gpus) and len(kinds) == 1
    theirs = Backend.default_device_backend_map.get(own.kind, OVER_THE_CPU)
    device = f"{own.kind}:{index}" if own.gpus else "cpu"
    return device, theirs if apart and not over_tcp else OVER_THE_CPU


def sharing(places: Sequence[Place], worker: int) -> list[int]:
    """The workers that have the same GPU as one, itself among them; nobody where it has none."""
    found = gpus(places)
    return [other for other, gpu in enumerate(found) if gpu is not None and gpu == found[worker]]


def taken(places: Sequence[Place], worker: int) -> int:
    """Which of the GPUs that it sees a worker takes: those who see the same take them in turn."""
    alike = [other for other, place in enumerate(places) if place == places[worker]]
    return alike.index(worker) % max(1, len(places[worker].gpus))


def gpus(places: Sequence[Place]) -> list[str | None]:
    """The GPU that each takes; None: it has none."""
    return [place.gpus[taken(places, w)] if place.gpus else None for w, place in enumerate(places)]


def use(device: "device") -> None:
    """Let this thread compute there: one that begins to use a GPU without a word uses the first."""
    import torch

    if accelerated(device):
        torch.accelerator.set_device_index(device.index or 0)


def settle(device: "device") -> None:
    """Wait until a device has done all that it was told to: what is timed next is then timed alone."""
    import torch

    if accelerated(device):
        torch.accelerator.synchronize(device)


def free_bytes(device: "device") -> float:
    """How much memory a GPU has free for all; infinite where its maker does not tell."""
    import torch

    with suppress(NotImplementedError, RuntimeError):
        return float(torch.accelerator.get_memory_info(device)[0])
    return inf


def computes_on(device: str) -> str:
    """A device, and what else the last bits of a sum may depend on."""
    import torch

    return f"{device} {torch.backends.cpu.get_cpu_capability()} torch {torch.__version__}"


def to_host(vector: "Tensor") -> "Tensor":
    """The vector in the host's memory: itself, or a pinned copy of a GPU's, made by the current stream.

    What other streams compute, such as the rest of a gradient, goes on meanwhile.
    """
    if not accelerated(vector.device):
        return vector
    import torch

    host = torch.empty_like(vector, device="cpu", pin_memory=True)
    host.copy_(vector, non_blocking=True)
    finished(vector)
    return host


def to_device(vector: "Tensor", device: "device") -> "Tensor":
    """A vector on a device: itself if it is there, or a copy that the GPU makes from pinned memory."""
    if vector.device.type == device.type:
        return vector
    return vector.pin_memory().to(device, non_blocking=True)
