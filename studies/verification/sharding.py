"""Sharded data parallelism: what a device sends and has, and how long a step takes, by closed forms.

n workers, U units of m bytes each, M = U·m; F and B the seconds of a unit's passes; g = (n−1)(α + m/(nβ))
those of gathering a unit, or reducing its gradient, at β bytes/s. Volumes and memory: Rajbhandari et al.
2020 ("ZeRO"), §3 and §7; hybrid sharding: Zhao et al. 2023 ("PyTorch FSDP"), §3.2.2.
"""

from typing import Any

import lockstep
from lockstep import Result, Scenario
from lockstep.studies.verification.case import Case, Outcome, constant, exact, grid, update_times

_BYTES, _RATE, _LATENCY = 5_760_000, 1e7, 1e-3
_F, _B = 0.2, 0.4  # seconds of all units


def _run(
    n: int,
    strategy: dict[str, Any],
    workload: dict[str, Any] | None = None,
    split: dict[str, Any] | None = None,
    **more: Any,
) -> Result:
    """Three mini-batches; a link carries 10 MB/s each way, with 1 ms of latency."""
    document = {
        "name": "verify",
        "cluster": {
            "workers": n,
            "compute": {"time": constant(_F + _B), "backward": _B / (_F + _B)},
            "network": {"bandwidth": "10 MB/s", "latency": "1 ms"},
            **more,
        },
        "workload": {"parameters": _BYTES // 4, **(workload or {})},
        **({"parallelism": split} if split else {}),
        "strategy": strategy,
        "stop": {"steps": 3},
    }
    return lockstep.simulate(Scenario.model_validate(document))


def _half(n: int, nbytes: float) -> float:
    """Seconds of half a ring."""
    return (n - 1) * (_LATENCY + nbytes / n / _RATE)


def _seconds(result: Result) -> float:
    """Of a step, once the first is made."""
    return float(update_times(result)[-1] - update_times(result)[0]) / 2


def _sent(n: int, strategy: dict[str, Any]) -> float:
    """Bytes a device and step."""
    return float(_run(n, strategy).metrics["bytes_sent"] / n / 3)


def _volume(n: int, zero: int, K: int) -> Outcome:
    """As an all-reduce."""
    return exact(2 * (n - 1) / n * _BYTES, _sent(n, {"name": "fsdp", "zero": zero, "buckets": K}))


def _volume_in_units(n: int, U: int, reshard: bool) -> Outcome:
    """Gathered, perhaps twice, and reduced."""
    theory = (3 if reshard else 2) * (n - 1) / n * _BYTES
    return exact(theory, _sent(n, {"name": "fsdp", "units": U, "reshard": reshard}))


def _hybrid_volume(n: int, k: int, U: int) -> Outcome:
    """FSDP inside a group of k, and an all-reduce of M/k between n/k of them."""
    groups = n // k
    theory = 3 * (k - 1) / k * _BYTES + 2 * (groups - 1) / groups * _BYTES / k
    return exact(theory, _sent(n, {"name": "hsdp", "group_size": k, "units": U}))


def _in_turn(n: int, U: int, reshard: bool) -> Outcome:
    """Nothing overlaps."""
    gathers = 2 if reshard else 1
    theory = _F + _B + (gathers + 1) * U * _half(n, _BYTES / U)
    strategy = {"name": "fsdp", "units": U, "prefetch": 0, "reshard": reshard}
    return exact(theory, _seconds(_run(n, strategy)))


def _overlapping(n: int, U: int, reshard: bool) -> Outcome:
    """While a unit is computed, the next is gathered, and before that the gradient of the last is reduced."""
    F, B, g = _F / U, _B / U, _half(n, _BYTES / U)
    theory = g + (U - 1) * max(F, g) + F
    if reshard:
        theory += g + max(B, g) + (U - 2) * max(B, 2 * g) + max(B, g) + g
    else:
        theory += B + (U - 1) * max(B, g) + g
    strategy = {"name": "fsdp", "units": U, "prefetch": 1, "reshard": reshard}
    return exact(theory, _seconds(_run(n, strategy)))


def _in_buckets(n: int, zero: int, K: int) -> Outcome:
    """Gradients are reduced under the backward pass; then parameters are gathered."""
    b, g = _B / K, _half(n, _BYTES / K)
    theory = _F + b + (K - 1) * max(b, g) + g + K * g
    return exact(theory, _seconds(_run(n, {"name": "fsdp", "zero": zero, "buckets": K})))


def _hybrid(n: int, k: int, U: int) -> Outcome:
    """Nothing overlaps; inside a host no time; the k rings between hosts share each host's card."""
    hosts = n // k
    theory = _F + _B + U * 2 * (hosts - 1) * (_LATENCY + _BYTES / U / hosts / _RATE)
    result = _run(
        n,
        {"name": "hsdp", "units": U, "prefetch": 0},
        workers_per_host=k,
        network={"bandwidth": "10 MB/s", "latency": "1 ms", "intra_host": {}},
    )
    return exact(theory, _seconds(result))


def _timeline(U: int, M: int, ahead: int, reshard: bool, F: float, B: float, g: float, a: float) -> float:
    """A step of one of the workers, which are alike: what it computes, and two streams, each in order.

    PyTorch FSDP (Zhao et al. 2023, §3.3): a unit is asked for when the one so many before it is begun; its
    gradient is reduced, in g, and summed between groups, in a, behind its backward pass; no more than `ahead`
    are under way when one is computed; none when a micro-batch is over.
    """
    now = inside = between = 0.0
    for _ in range(M):
        for seconds, backward in ((F, False), (B, True)):
            there, reduced = list[float](), list[float]()
            for unit in range(U):
                while len(there) <= min(unit + ahead, U - 1):
                    inside = max(inside, now) + (g if reshard or not backward else 0.0)
                    there.append(inside if reshard or not backward else now)
                now = max(now, there[unit], *reduced[: max(0, unit - ahead)]) + seconds
                if backward:
                    inside = max(inside, now) + g
                    between = max(between, inside) + a
                    reduced.append(max(inside, between) if a else inside)
        now = max(now, reduced[-1])
    return now


def _streams(n: int, U: int, M: int, ahead: int, reshard: bool, rate: float) -> Outcome:
    """Any number ahead, and micro-batches."""
    strategy = {"name": "fsdp", "units": U, "prefetch": ahead, "reshard": reshard}
    network = {"bandwidth": f"{rate} B/s", "latency": f"{_LATENCY} s"}
    split = {"micro_batches": M, "recompute": False}
    result = _run(n, strategy, {"batch_size": 12}, split, network=network)
    g = (n - 1) * (_LATENCY + _BYTES / U / n / rate)
    return exact(_timeline(U, M, ahead, reshard, _F / U / M, _B / U / M, g, 0.0), _seconds(result))


def _hybrid_streams(n: int, k: int, U: int, M: int, ahead: int) -> Outcome:
    """Sums between groups overlap with all else; inside a host no time."""
    hosts = n // k
    strategy = {"name": "hsdp", "units": U, "prefetch": ahead}
    network = {"bandwidth": "10 MB/s", "latency": "1 ms", "intra_host": {}}
    split = {"micro_batches": M}
    result = _run(n, strategy, {"batch_size": 12}, split, workers_per_host=k, network=network)
    a = 2 * (hosts - 1) * (_LATENCY + _BYTES / U / hosts / _RATE)
    return exact(_timeline(U, M, ahead, True, _F / U / M, _B / U / M, 0.0, a), _seconds(result))


def _memory(n: int, zero: int, U: int) -> Outcome:
    """16 bytes a parameter with Adam and mixed precision, 12, 14 or 16 of them divided by n; and what is
    there in full: a bucket's gradient, or two units of parameters and gradients."""
    parameters = _BYTES // 4
    unit = 2 * parameters / U
    in_full = {1: 0.0, 2: unit, 3: min(4, 1 + U) * unit}[zero]
    shared = {1: 12, 2: 14, 3: 16}[zero]
    theory = parameters * (16 - shared + shared / n) + in_full
    strategy = {"name": "fsdp", "optimizer": "adam", "zero": zero, "units" if zero == 3 else "buckets": U}
    return exact(theory, _run(n, strategy, {"mixed": True}).metrics["memory_bytes"])


_WORKERS, _UNITS, _EITHER = [2, 8], [1, 3, 12], [True, False]
_FULL = "sharding zero=3, n={n}, U={U}, reshard {reshard}: "
CASES: list[Case] = [
    *grid("sharding zero={zero}, n={n}, K={K} buckets: bytes", _volume, n=_WORKERS, zero=[1, 2], K=[5]),
    *grid(_FULL + "bytes", _volume_in_units, n=_WORKERS, U=[1, 12], reshard=_EITHER),
    *grid("sharding hybrid, n={n}, k={k}, U={U}: bytes", _hybrid_volume, n=[12], k=[1, 3, 12], U=[1, 4]),
    *grid(_FULL + "step, nothing ahead", _in_turn, n=_WORKERS, U=_UNITS, reshard=_EITHER),
    *grid(_FULL + "step, one unit ahead", _overlapping, n=_WORKERS, U=[2, 3, 12], reshard=_EITHER),
    *grid("sharding zero={zero}, n={n}, K={K} buckets: step", _in_buckets, n=_WORKERS, zero=[1, 2], K=[1, 4]),
    *grid("sharding hybrid, n={n}, k={k}, U={U}: step, nothing ahead", _hybrid, n=[8], k=[2, 4], U=[1, 4]),
    *grid("sharding zero=3, n={n}, U={U}, M={M}, {ahead} ahead, reshard {reshard}, {rate:.0e} B/s: step",
          _streams, n=[4], U=[5], M=[1, 3], ahead=[0, 1, 2, 5], reshard=_EITHER, rate=[1e7, 4e7]),
    *grid("sharding hybrid, n={n}, k={k}, U={U}, M={M}, {ahead} ahead: step",
          _hybrid_streams, n=[8], k=[2], U=[4], M=[1, 3], ahead=[0, 1, 2]),
    *grid("sharding zero={zero}, n={n}, U={U}: memory", _memory, n=[8], zero=[1, 2, 3], U=[1, 2, 6]),
]  # fmt: skip
