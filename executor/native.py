"""The native all-reduce: torch.distributed's own, which is gloo's or NCCL's."""

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from lockstep.executor.devices import OVER_THE_CPU, settle, to_host
from lockstep.executor.stores import Store
from lockstep.job.events import Retired
from lockstep.strategies.node import Vector
from lockstep.strategies.parameter_server import shard_of

if TYPE_CHECKING:
    from lockstep.executor.port import RealPort


def join(backend: str, device: torch.device, store: Store, rank: int, workers: int) -> None:
    """Join the other workers. With NCCL and its like, which is told the device, communicators are made here
    and now, and not at the first sum, on the clock."""
    known: dict[str, Any] = {} if backend == OVER_THE_CPU else {"device_id": device}
    dist.init_process_group(backend, store=store, rank=rank, world_size=workers, **known)


def first_sum(vector: torch.Tensor, group: Any) -> None:
    """Sum vectors like this once: NCCL connects GPUs at the first sum, and not on the clock then."""
    dist.all_reduce(to_host(vector.clone()) if _through_host(group) else vector.clone(), group=group)
    settle(vector.device)


def _through_host(group: Any) -> bool:
    return bool(dist.get_backend(group) == OVER_THE_CPU)


async def all_reduce(port: "RealPort", vector: Vector) -> tuple[Vector, int]:
    """The sum over all workers, of the vector's shape, and the bytes that this one sends. Raises Retired."""
    p, index = len(port.node.workers), port.node.index
    if p > 1 and not port.stopping.together():
        raise Retired
    # One more value: how many workers have seen the end of the run. None may leave before all know.
    ending = vector.new_tensor([float(port.over())])  # type: ignore[attr-defined]
    total = torch.cat([vector, ending])  # type: ignore[list-item]

    def do() -> None:
        if p > 1:
            port.in_collective = True
            if not dist.is_initialized():
                port.join_workers()
            summed = to_host(total) if _through_host(port.process_group) else total
            dist.all_reduce(summed, group=port.process_group)
            if summed is not total:
                total.copy_(summed, non_blocking=True)
            port.in_collective = False
        if bool(total[-1]):  # on a GPU this waits for the sum
            raise Retired

    await port.later(do)
    # As in a ring: every chunk but one to be summed, and every one but one that is.
    kept = [shard_of(vector, (index + step) % p, p).nbytes for step in (1, 2)]
    return total[:-1], 2 * vector.nbytes - sum(kept)
