"""What a process of a real run keeps in memory, and whether GPUs have room for it."""

from collections.abc import Sequence

import torch

from lockstep.executor.barrier import barrier
from lockstep.executor.devices import asked, free_bytes
from lockstep.executor.stores import Store
from lockstep.job.memory import while_stepping
from lockstep.job.plan import Plan
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.workload import UserTask
from lockstep.workloads.memory import bytes_of, data_bytes

_FIRST = 1  # the first parameters: the learner, the port and the strategy have the same
_ALIGNED = 1  # of a worker: weights that do not lie as torch's own memory does are copied
_MADE = 2  # while a model is made: it, and its parameters
_SENT = 1  # of a worker: where a message lies until its receiver has done with it
_OWN_STEP = 3  # of a worker that steps by itself: new parameters beside the old, what it is sent, a sum
_CODED = 6  # of a worker: what was lost before, sums with it, what a codec has in between, what comes of it


def held(plan: Plan, rank: int) -> int:
    """Bytes of vectors, at the most, on a CPU. Measured: benchmarks/worker_memory.py."""
    if rank not in plan.workers:
        return plan.served_bytes(rank)
    strategy, given = plan.strategy, plan.scenario.strategy.parameters
    vector = plan.group(rank).length * plan.sizes.itemsize
    needs = plan.memory[plan.places[rank][0]]
    own = needs.total - needs.activations - needs.buffers
    state = strategy.moments(given)
    steps = 0 if state is None else _OWN_STEP + while_stepping(state)
    coded = strategy.encodes(given) * _CODED
    return _FIRST * plan.sizes.nbytes + own + (_ALIGNED + _SENT + steps + coded) * vector


def with_data(plan: Plan, rank: int) -> int:
    """Bytes, at the most, on a CPU, with the data set and what is kept of a mini-batch.

    A server has neither, but while it makes the model, whose first parameters it has, a user's function makes
    data sets, too.
    """
    workload, its = plan.scenario.workload, plan.sizes
    if rank in plan.workers:
        return bytes_of(workload, its, held(plan, rank))
    made = data_bytes(workload) if isinstance(workload, UserTask) else 0
    return max(held(plan, rank), workload.learns * _MADE * its.nbytes + made)


def require_on_gpus(
    plan: Plan, store: Store, rank: int, gpus: Sequence[str | None], device: torch.device
) -> None:
    """Raise ScenarioError if a GPU has less free than is counted of those who take it.

    All processes of a run call this, before any has put something there. gpus: who takes which.
    """
    free = free_bytes(device) if gpus[rank] is not None else 0.0
    store.set(f"free/{rank}", repr(free))
    barrier(store, "free memory", len(gpus))
    if gpus[rank] is None:
        return
    together = [other for other, gpu in enumerate(gpus) if gpu == gpus[rank]]
    free = min(float(store.get(f"free/{other}")) for other in together)  # with what each takes for itself
    needed = sum(_on_gpu(plan, other) for other in together)
    if needed > free:
        who = " and ".join(plan.roles[other].name for other in together)
        key, _ = asked(plan.scenario.cluster, rank in plan.workers)
        free_gb = f"{free / 1e9:.3g} GB is free there"
        problem = f"{who} would take {needed / 1e9:.3g} GB of the GPU's memory, and {free_gb}"
        raise ScenarioError(f"{problem}; take fewer, a smaller model or batch_size, or {key}: cpu", key=key)


def _on_gpu(plan: Plan, rank: int) -> int:
    if rank not in plan.workers:
        return held(plan, rank)
    needs, workload = plan.memory[plan.places[rank][0]], plan.scenario.workload
    # in 16 bits less is kept, but not of all
    kept = needs.activations + needs.buffers if workload.computed_in == "float32" else 0
    return held(plan, rank) + data_bytes(workload) + kept
