"""What a process of a real run keeps in memory besides its data and mini-batch: vectors."""

from lockstep.job.plan import Plan

_FIRST = 1  # the first parameters: the learner, the port and the strategy have the same
_ALIGNED = 1  # of a worker: weights that do not lie as torch's own memory does are copied
_SENT = 1  # of a worker: where a message lies until its receiver has done with it
_OWN_STEP = 3  # of a worker that steps by itself: new parameters beside the old, what it is sent, a sum
_SERVES = 4  # of a server: its parameters, the new ones, the sum of pushes, a snapshot on its way
_OF_EACH = 2  # of a server: what a child has pushed, and where the answer to it lies
_CODED = 6  # of a worker: what was lost before, sums with it, what a codec has in between, what comes of it
_CODED_TO = 2  # of a server: a push as it was and as it is decoded
_WHILE_MOMENTS_STEP = 3  # besides the new moments: what a formula has in between (strategies/optimizers.py)


def held(plan: Plan, rank: int) -> int:
    """Bytes, at the most, on a CPU. Measured: benchmarks/worker_memory.py."""
    role, group = plan.roles[rank], plan.group(rank)
    strategy, given = plan.strategy, plan.scenario.strategy.parameters
    vector = group.length * plan.sizes.itemsize
    coded = strategy.encodes(given)
    if role.kind == "worker":
        needs = plan.memory[plan.places[rank][0]]
        own = needs.total - needs.activations - needs.buffers
        state = strategy.moments(given)
        steps = 0 if state is None else _OWN_STEP + _stepping(state)
        return _FIRST * plan.sizes.nbytes + own + (_ALIGNED + _SENT + steps + coded * _CODED) * vector
    state = strategy.server_moments(given)
    shard = vector // max(1, len(group.shards))
    serves = _SERVES + state + _stepping(state) + coded * _CODED_TO
    return _FIRST * vector + shard * (serves + _OF_EACH * len(role.children))


def _stepping(moments: int) -> int:
    """Vectors that a step takes for a while because of its moments."""
    return moments and moments + _WHILE_MOMENTS_STEP
