"""Pipelines: the bubble and what stages keep, by closed forms; with a slow stage and a network, by a list of
events.

K equal stages, M micro-batches, F and B = B_in + W the seconds of a micro-batch's passes through a stage.
Sources: Huang et al. 2019 (GPipe), Narayanan et al. 2021 (1F1B and interleaved), Qi et al. 2024 (ZB-H1).
"""

from typing import Any

import lockstep
from lockstep import Result, Scenario
from lockstep.strategies.orders import ORDERS
from lockstep.studies.verification.case import Case, Outcome, constant, exact, grid
from lockstep.studies.verification.event_list import Pass, makespan

_SECONDS = {"forward": 1.0, "backward": 2.0, "backward-inputs": 1.0, "backward-weights": 1.0}
_RECOMPUTING = _SECONDS | {"backward": 3.0, "backward-inputs": 2.0}


def _step(
    order: str, K: int, M: int, v: int = 1, recompute: bool = False, overhead_s: float = 0, **more: Any
) -> Result:
    """One mini-batch, with F = B_in = W = 1 s for a whole stage, of activations of 1 MB a micro-batch."""
    document = {
        "name": "verify",
        "cluster": {
            "workers": K,
            "compute": {"time": constant(3 * K * M), "backward": 2 / 3},
            "pass_overhead": f"{overhead_s} s",
            **more,
        },
        "workload": {"parameters": 1000, "batch_size": M, "activation": f"{M} MB"},
        "parallelism": {
            "pipeline": K,
            "micro_batches": M,
            "order": order,
            "chunks": v,
            "recompute": recompute,
        },
        "strategy": "all-reduce",
        "stop": {"steps": 1},
    }
    return lockstep.simulate(Scenario.model_validate(document))


def _seconds(result: Result) -> float:
    """From the first pass to the end of the last."""
    passes = result.records[result.records["event"] == "pass"]
    return float(passes["end"].max() - passes["start"].min())


def _bubble(order: str, K: int, M: int, v: int) -> Outcome:
    work = 3 * M
    theory = {
        "gpipe": (K - 1) * 3,
        "1f1b": (K - 1) * 3,
        "interleaved": (K - 1) * 3 / v,
        "zero-bubble": (K - 1) * 2 - (min(M, K) - 1),
    }[order]
    return exact(work + theory, _seconds(_step(order, K, M, v)))


def _recomputing(order: str, K: int, M: int) -> Outcome:
    return exact((M + K - 1) * 4, _seconds(_step(order, K, M, recompute=True)))


def _kept(order: str, K: int, M: int, v: int) -> Outcome:
    """Activations that all stages keep at their worst moments, added up; a chunk's each."""
    theory = {
        "gpipe": [M] * K,
        "1f1b": [min(M, K - s) for s in range(K)],
        "interleaved": [min(M * v, 2 * (K - 1 - s) + (v - 1) * K + 1 if M > K else M * v) for s in range(K)],
        "zero-bubble": [min(M, K)] * K,
    }[order]
    passes = _step(order, K, M, v).records
    passes = passes[passes["event"] == "pass"]
    most = passes.groupby("node")["nbytes"].max() / 1e6
    return exact(sum(theory), float(most.sum()))


def _network(order: str, K: int, M: int, v: int, recompute: bool) -> Outcome:
    """Stage 1 three times as slow, 0.25 s a pass besides, 1 MB a message at 2 MB/s, 50 ms of latency."""
    result = _step(
        order,
        K,
        M,
        v,
        recompute,
        overhead_s=0.25,
        network={"bandwidth": "2 MB/s", "latency": "50 ms"},
        stragglers=[{"worker": 1, "slowdown": 3}],
    )
    takes = _RECOMPUTING if recompute else _SECONDS
    orders: list[list[Pass]] = [[*ORDERS[order](stage, K, M, v)] for stage in range(K)]
    theory = makespan(
        orders,
        v,
        lambda stage, kind: takes[kind] / v * (3 if stage == 1 else 1) + 0.25,
        nbytes=1e6,
        bandwidth=2e6,
        latency=0.05,
    )
    return exact(theory, _seconds(result))


_PLAIN = ["gpipe", "1f1b", "zero-bubble"]
_STAGES, _MICRO = [2, 3, 8, 16], [1, 2, 8, 64]
_INTERLEAVED = "pipeline interleaved, K={K}, M={M}, v={v}: "
_OTHERS = "pipeline {order}, K={K}, M={M}: "
CASES: list[Case] = [
    *grid(_OTHERS + "step", _bubble, order=_PLAIN, K=_STAGES, M=_MICRO, v=[1]),
    *grid(_INTERLEAVED + "step", _bubble, order=["interleaved"], K=[2, 4], M=[4, 8, 64], v=[1, 2, 3, 4]),
    *grid(_INTERLEAVED + "step", _bubble, order=["interleaved"], K=[16], M=[16, 64], v=[2, 4]),
    *grid(_OTHERS + "recomputing", _recomputing, order=_PLAIN[:2], K=[4], M=[1, 8]),
    *grid(_OTHERS + "kept", _kept, order=_PLAIN, K=[2, 8], M=[1, 4, 16], v=[1]),
    *grid(_INTERLEAVED + "kept", _kept, order=["interleaved"], K=[4], M=[4, 8, 16], v=[1, 2, 4]),
    *grid(
        _OTHERS + "slow stage, network, recompute {recompute}",
        _network, order=_PLAIN, K=[2, 4, 6], M=[1, 3, 8], v=[1], recompute=[False, True],
    ),
    *grid(
        _INTERLEAVED + "slow stage, network",
        _network, order=["interleaved"], K=[2, 4], M=[4, 8], v=[2, 3], recompute=[False],
    ),
]  # fmt: skip
