"""A pipeline's step by a plain list of events: an opinion on the simulator that shares nothing with it.

Passes are done in the given order as soon as what they need is there; messages are fluids that share the
cards of their hosts fairly, one at a time from one stage to another. Slow, and for a few stages only.
"""

from collections.abc import Callable, Sequence
from math import inf

Pass = tuple[str, int, int]  # kind, micro-batch, chunk
Flow = tuple[int, int]  # from a stage to a stage


def makespan(
    orders: Sequence[Sequence[Pass]],
    chunks: int,
    seconds: Callable[[int, str], float],
    nbytes: float = 0.0,
    bandwidth: float = inf,
    latency: float = 0.0,
) -> float:
    """When the last stage is done, in seconds: `seconds` says how long a stage takes for a pass of a kind.

    A message of `nbytes` goes over each boundary between pieces of the model, forward and backward;
    `bandwidth` is of each stage's card each way, in bytes/s.
    """
    stages = len(orders)
    last = stages * chunks - 1
    todo = [list(order) for order in orders]
    there: set[tuple[str, int, int]] = (
        set()
    )  # what has been computed, or has arrived: (what, piece, micro-batch)
    running: dict[int, tuple[float, Pass]] = {}
    queues: dict[Flow, list[tuple[float, tuple[str, int, int]]]] = {}  # bytes left, and what they bring
    flying: list[tuple[float, tuple[str, int, int]]] = []  # when it arrives
    now = 0.0
    while any(todo) or running:
        for stage, passes in enumerate(todo):
            if stage not in running and passes and _ready(passes[0], stage, stages, last, there):
                kind, micro, chunk = passes.pop(0)
                running[stage] = now + seconds(stage, kind), (kind, micro, chunk)
        heads = {flow: queue[0][0] for flow, queue in queues.items() if queue}
        rates = _fair(heads, bandwidth)
        ends = [end for end, _ in running.values()] + [at for at, _ in flying]
        ends += [now + left / rates[flow] if rates[flow] < inf else now for flow, left in heads.items()]
        then = min(ends)
        for flow, left in heads.items():
            rest = left - rates[flow] * (then - now) if rates[flow] < inf else 0.0
            if rest <= 1e-9 * nbytes:
                flying.append((then + latency, queues[flow].pop(0)[1]))
            else:
                queues[flow][0] = rest, queues[flow][0][1]
        now = then
        there |= {what for at, what in flying if at <= now}
        flying = [(at, what) for at, what in flying if at > now]
        for stage in [stage for stage, (end, _) in running.items() if end <= now]:
            kind, micro, chunk = running.pop(stage)[1]
            piece = chunk * stages + stage
            there.add((kind, piece, micro))
            if kind == "forward" and piece < last:
                _send(
                    queues,
                    flying,
                    there,
                    (stage, (stage + 1) % stages),
                    nbytes,
                    ("activation", piece + 1, micro),
                )
            if kind in ("backward", "backward-inputs") and piece:
                _send(
                    queues, flying, there, (stage, (stage - 1) % stages), nbytes, ("error", piece - 1, micro)
                )
    return now


def _ready(wanted: Pass, stage: int, stages: int, last: int, there: set[tuple[str, int, int]]) -> bool:
    kind, micro, chunk = wanted
    piece = chunk * stages + stage
    if kind == "forward":
        return piece == 0 or ("activation", piece, micro) in there
    if kind == "backward-weights":
        return True
    return piece == last or ("error", piece, micro) in there


def _send(
    queues: dict[Flow, list[tuple[float, tuple[str, int, int]]]],
    flying: list[tuple[float, tuple[str, int, int]]],
    there: set[tuple[str, int, int]],
    flow: Flow,
    nbytes: float,
    what: tuple[str, int, int],
) -> None:
    if flow[0] == flow[1]:  # to itself
        there.add(what)
    else:
        queues.setdefault(flow, []).append((nbytes, what))


def _fair(flows: dict[Flow, float], bandwidth: float) -> dict[Flow, float]:
    """Max-min fair rates on the cards: those that the most loaded one leaves least are settled first."""
    rates: dict[Flow, float] = {}
    free = {("up", a): bandwidth for a, _ in flows} | {("down", b): bandwidth for _, b in flows}
    if bandwidth == inf:
        return dict.fromkeys(flows, inf)
    left = set(flows)
    while left:
        load = {card: [f for f in left if card in (("up", f[0]), ("down", f[1]))] for card in free}
        loaded = [card for card in load if load[card]]
        card = min(loaded, key=lambda card: (free[card] / len(load[card]), card))
        share, settled = free[card] / len(load[card]), load[card]
        for flow in settled:
            rates[flow] = share
            left.discard(flow)
            for each in (("up", flow[0]), ("down", flow[1])):
                free[each] -= share
    return rates
