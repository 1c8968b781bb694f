"""What a process of a real run keeps in memory besides its data and mini-batch: vectors."""

from lockstep.job.plan import Plan

_FIRST = 3  # the first parameters: of the model as it was made, the learner's, the strategy's
_STEP = 3  # of a worker: new parameters beside the old, what a message brought, the sum that it is part of
_SERVES = 5  # of a server: the first parameters, the old, the new, the sum of pushes, a snapshot on its way
_ROUNDS = 2  # whose pushes a server has: the last one's until the next has come


def held(plan: Plan, rank: int) -> int:
    """Bytes, at the most, on a CPU. Measured: benchmarks/worker_memory.py."""
    role, group = plan.roles[rank], plan.group(rank)
    vector = group.length * plan.sizes.itemsize
    if role.kind == "worker":
        needs = plan.memory[plan.places[rank][0]]
        own = needs.total - needs.activations - needs.buffers
        return _FIRST * plan.sizes.nbytes + own + _STEP * vector
    shard = vector // max(1, len(group.shards))
    state = plan.strategy.server_moments(plan.scenario.strategy.parameters)
    return vector + shard * (_SERVES - 1 + state + _ROUNDS * len(role.children))
