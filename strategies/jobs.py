"""All-reduce as a driver's jobs, whose tasks it starts one after the other: what Spark's scheduling costs."""

from lockstep.strategies.all_reduce import Replica
from lockstep.strategies.bounds import NonNegative
from lockstep.strategies.collectives import ALGORITHMS, Algorithm
from lockstep.strategies.node import Node, Vector
from lockstep.strategies.optimizers import Transformation


async def in_jobs(
    node: Node,
    optimizer: Transformation,
    *,
    task_overhead_s: NonNegative = 0.005,
    algorithm: Algorithm = "parameter-server",
) -> None:
    """Every mini-batch is two jobs: gradients, then their sum and the step; a driver starts a task a worker.

    Dai et al. 2019, "BigDL: a distributed deep learning framework for big data" (its white paper read,
    §3.1–3.3): a job begins when all tasks of the one before have ended, and the driver takes
    `task_overhead_s` for each of the n tasks, so that a mini-batch takes 2n·`task_overhead_s` besides the
    slowest gradient and the sum. Task k sums slice k and hands it to all, which is the algorithm
    parameter-server. The first worker's host has the driver. The default is ours: they publish none.
    Failure: worker 0 saves parameters and the optimizer's state, and after a crash all go on from there;
    nobody goes on without a worker.
    """
    replica = Replica(node, optimizer, 1)

    async def total(bucket: int, gradient: Vector) -> Vector:
        await _started(node, task_overhead_s)
        return await node.collective(ALGORITHMS[algorithm], gradient)

    while await node.next_batch_available():
        await _started(node, task_overhead_s)
        await replica.step(total)


async def _started(node: Node, seconds: float) -> None:
    """Wait for the own task of a job to be started; everyone calls this once a job."""
    driver, *others = node.workers
    if node.rank != driver:
        node.send(driver, "ended")
        await node.receive("task", driver)
        return
    for worker in others:
        await node.receive("ended", worker)
    for worker in others:
        await node.sleep(seconds)
        node.send(worker, "task")
    await node.sleep(seconds)
