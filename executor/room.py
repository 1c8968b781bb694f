"""What a process of a real run keeps in memory besides its data and mini-batch: vectors."""

from lockstep.job.memory import while_stepping
from lockstep.job.plan import Plan

_FIRST = 1  # the first parameters: the learner, the port and the strategy have the same
_ALIGNED = 1  # of a worker: weights that do not lie as torch's own memory does are copied
_SENT = 1  # of a worker: where a message lies until its receiver has done with it
_OWN_STEP = 3  # of a worker that steps by itself: new parameters beside the old, what it is sent, a sum
_CODED = 6  # of a worker: what was lost before, sums with it, what a codec has in between, what comes of it


def held(plan: Plan, rank: int) -> int:
    """Bytes, at the most, on a CPU. Measured: benchmarks/worker_memory.py."""
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
