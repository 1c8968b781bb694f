"""A first update, sum, encoding and copy before the clock starts: on a GPU the first of each is slow.

Kernels are loaded when they are first used, and memory is had when it is first needed. Nothing of it is kept.
"""

from typing import Any

from lockstep.executor.devices import settle, to_device, to_host
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.strategies.codecs import NAMES, Codec
from lockstep.strategies.parts import taken
from lockstep.strategies.updates import sum_of, trials

_PUSHES = 2  # at the most: those are added up, and all others like them
_FEW = 16_384  # elements of a worker: its memory is that of its gradient


def rehearse(plan: Plan, node: Node) -> None:
    """Do, on stand-ins, what a node does when it is first pushed to, or first steps by itself."""
    strategy, given, kind = plan.strategy, plan.scenario.strategy.parameters, node.role.kind
    vector: Any = node.arithmetic.initial
    if kind == "worker":
        vector = vector[:_FEW]
        if (own := strategy.own_optimizer(given)) is not None:
            _, state = own.step(vector, own.initial, vector)
            _ = vector + own.step(vector, state, vector)[0]  # the moments are vectors from the second on
    else:
        vector = taken(vector, node.shards[node.shard], node.concatenate)
        many = min(_PUSHES, len(node.children))
        if kind == "server":
            updates = trials(strategy.rule(given), vector, lambda: vector, many)
            next(updates), next(updates)
        else:
            sum_of([vector] * many)
    for name in strategy.codecs(given) & {*NAMES}:
        codec = Codec(name)  # those of a file of their own know more than a vector
        node.arithmetic.decode(node.arithmetic.encode(vector, codec, 0), codec, len(vector))
    to_device(to_host(vector), vector.device)
    settle(vector.device)
