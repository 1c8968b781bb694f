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
from lockstep.executor.node import RealNode
from lockstep.executor.process import everyone
from lockstep.executor.sockets import Place
from lockstep.executor.transport import Transport
from lockstep.strategies import find
from lockstep.strategies.placement import shards_of
from lockstep.workloads import build, sizes
from lockstep.workloads.compute_time import compute_times
from lockstep.workloads.quota import quota
from lockstep.workloads.snapshots import Snapshots

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
def real_nodes(config: Scenario) -> Iterator[list[RealNode]]:
    """The nodes of a run that has not begun, by rank; each has a learner of its own."""
    roles, workers = everyone(config), config.cluster.workers
    strategy = find(config.strategy.name, config.strategy.parameters)
    size, store = sizes(config.workload), dist.HashStore()
    shards = shards_of(config.cluster, strategy.has_servers, size.parameters)
    nodes, folder = [], Path(tempfile.mkdtemp())
    try:
        for rank, role in enumerate(roles):
            learner = build(config.workload, workers, config.seed) if config.workload.learns else None
            dtype = getattr(torch, getattr(config.workload, "dtype", "float32"))
            initial = learner.initial() if learner else torch.zeros(size.parameters, dtype=dtype)
            emulated = role.kind == "worker" and config.cluster.compute != "measured"
            compute = compute_times(config, size)[rank] if emulated else None
            limits = quota(config, size.samples, strategy.equal_steps, strategy.pooled)
            transport = Transport(store, rank, Place(folder), initial, range(len(roles)))
            snapshots = Snapshots(size.nbytes)
            nodes.append(
                RealNode(config, rank, roles, shards, initial, transport, compute, learner, limits, snapshots)
            )
        yield nodes
    finally:
        for node in nodes:
            node.transport.close()
        shutil.rmtree(folder)
