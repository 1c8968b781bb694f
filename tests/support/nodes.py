"""Nodes of the executor in this process, with real sockets between them, outside a run."""

import shutil
import tempfile
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from lockstep import Scenario
from lockstep.executor.port import RealPort
from lockstep.executor.process import running
from lockstep.executor.sockets import Place
from lockstep.executor.transport import Transport
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.job.snapshots import Snapshots
from lockstep.workloads import build
from lockstep.workloads.compute_time import compute_times

T = TypeVar("T")


def at_once(waiting: Awaitable[T]) -> T:
    """What an awaitable gives that has nothing to wait for."""
    program = waiting.__await__()
    try:
        next(program)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


@contextmanager
def real_nodes(config: Scenario) -> Iterator[list[Node]]:
    """The nodes of a run that has not begun, by rank; each has a learner of its own."""
    plan, store = Plan.of(config), dist.HashStore()
    nodes, folder = [], Path(tempfile.mkdtemp())
    try:
        for rank in range(len(plan.roles)):
            learns = config.workload.learns
            learner = build(config.workload, len(plan.workers), config.seed) if learns else None
            dtype = getattr(torch, getattr(config.workload, "dtype", "float32"))
            initial = learner.initial() if learner else torch.zeros(plan.sizes.parameters, dtype=dtype)
            emulated = rank in plan.workers and config.cluster.compute != "measured"
            compute = compute_times(config, plan.sizes)[rank] if emulated else None
            transport = Transport(store, rank, Place(folder), initial, range(len(plan.roles)))
            snapshots = Snapshots(plan.sizes.nbytes)
            nodes.append(running(RealPort(plan, rank, initial, transport, compute, learner), snapshots))
        yield nodes
    finally:
        for node in nodes:
            node.port.transport.close()
        shutil.rmtree(folder)
