"""What the executor's speed is compared with: plain DistributedDataParallel, and ZeroMQ's bare sockets.

A rival is a function that runs in processes of its own, which sit where those of a run would.
"""

import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import zmq
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from lockstep.executor.fork_server import start_fork_server
from lockstep.executor.forking import no_main_module
from lockstep.executor.testbed import Seat
from lockstep.scenarios import Scenario
from lockstep.workloads import build

Rival = Callable[..., list[float]]
COPIED = 1 << 16  # bytes; below it the executor lets ZeroMQ copy, and so does the bare transport


def seconds(rival: Rival, seats: Sequence[Seat], *arguments: Any) -> float:
    """The median time of a step of a rival, which returns all of them: of process 0."""
    start_fork_server()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    processes = [
        context.Process(target=_be, args=(rival, rank, seat, len(seats), store.port, arguments))
        for rank, seat in enumerate(seats)
    ]
    with no_main_module():
        for process in processes:
            process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"{rival.__name__} failed")
    return median(json.loads(store.get("times")))


def _be(rival: Rival, rank: int, seat: Seat, world: int, port: int, arguments: Sequence[Any]) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    seat.take()
    times = rival(rank, world, store, seat, *arguments)
    if rank == 0:
        store.set("times", json.dumps(times))
    store.add("ended", 1)
    while store.add("ended", 0) < world:
        time.sleep(0.01)


def ddp(rank: int, world: int, store: dist.Store, seat: Seat, scenario: Scenario, steps: int) -> list[float]:
    """Plain DistributedDataParallel and SGD, on the model, the data and the mini-batches of the scenario."""
    learner: Any = build(scenario.workload, world, scenario.seed)
    group = dist.PrefixStore("group", store)
    dist.init_process_group("gloo", store=group, rank=rank, world_size=world)
    times = train(DistributedDataParallel(deepcopy(learner.module)), learner, rank, steps)
    dist.destroy_process_group()
    return times


def plain(
    rank: int, world: int, store: dist.Store, seat: Seat, scenario: Scenario, steps: int
) -> list[float]:
    """Training in one process, on a GPU."""
    learner: Any = build(scenario.workload, world, scenario.seed, "cuda:0")
    return train(deepcopy(learner.module), learner, rank, steps)


def train(model: torch.nn.Module, learner: Any, worker: int, steps: int) -> list[float]:
    """SGD on a worker's mini-batches; what the steps took, but for the first two, which are slower."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    times = []
    for step in range(steps):
        begin = time.monotonic()
        x, y = learner.batch(worker, step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if x.is_cuda:
            torch.cuda.synchronize(x.device)
        times.append(time.monotonic() - begin)
    return times[2:]


def bare(
    rank: int, world: int, store: dist.Store, seat: Seat, nbytes: int, count: int, busy_s: float
) -> list[float]:
    """Process 0 pushes so many bytes to process 1, which answers with as many: PUSH and PULL sockets.

    Each computes for `busy_s` before it sends: meanwhile the other one's core may fall asleep.
    """
    context = zmq.Context()
    inbox, out = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    inbox.set_hwm(0)
    out.set_hwm(0)
    address = seat.address or "127.0.0.1"
    port = inbox.bind_to_random_port(f"tcp://{address}")
    store.set(f"inbox/{rank}", f"tcp://{address}:{port}")
    out.connect(store.get(f"inbox/{1 - rank}").decode())
    body, times = torch.zeros(nbytes, dtype=torch.uint8), []
    for _ in range(count):
        begin = time.monotonic()
        for turn in range(2):
            if turn == rank:
                until = time.monotonic() + busy_s
                while time.monotonic() < until:
                    pass
                out.send_multipart([b"header", memoryview(body.numpy())], copy=nbytes < COPIED)
            else:
                inbox.recv_multipart(copy=False)
        times.append(time.monotonic() - begin)
    store.add("done", 1)
    while store.add("done", 0) < world:
        time.sleep(0.01)
    context.destroy(linger=0)
    return times[count // 10 :]
