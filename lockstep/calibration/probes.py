"""Small runs that show what messages cost: one worker or two, at their own pace, and sizes from 1 to 8 MB.

A worker sleeps between its exchanges, as in every emulated run: a process that has slept answers later.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.scenarios import Scenario

PACE_S = 0.02  # of computing between two exchanges
_LEAST = 3  # exchanges, if the largest messages take long
_MOST_S = 4.0  # that a run may take, whatever is in it

_CROWD, _MOST_CROWDED = 6, 48  # processes for each core, and at most
_CROWD_SIZES = (1, 1000, 2500, 5000, 10_000, 20_000)  # values in a message
_LONGER = 3  # as for half a second after their start many processes are slower

ONE, FAN_OUT, BACKLOG = "1 worker, 1 value", "2 workers at a barrier, 1 value", "8 messages in a row"
_ASYNCHRONOUS, _BARRIER = {"name": "asynchronous"}, {"name": "synchronous"}
_RING = {"name": "all-reduce", "algorithm": "ring"}
_ALONE = {"name": "local-sgd", "averaging_period": 1_000_000}  # never, in these runs
_IN_A_ROW = {"name": "synchronous", "chunks": 8}


def crowded(cores: int, rate: float | None, seconds: float) -> dict[str, Scenario]:
    """Probes of more processes than there are cores, with messages and without; none on many cores.

    Each is of at least 3 x `seconds` s.
    """
    workers = _CROWD * cores
    if workers > _MOST_CROWDED:
        return {}
    chosen: dict[str, tuple[int, Mapping[str, Any]]] = {f"{workers} workers, no messages": (workers, _ALONE)}
    chosen |= {f"ring of {workers}, {4 * size:,} B each": (workers * size, _RING) for size in _CROWD_SIZES}
    return {
        name: _probe(name, size, workers, 1, strategy, rate, _LONGER * seconds)
        for name, (size, strategy) in chosen.items()
    }


def probes(sizes: Sequence[int], rate: float | None, seconds: float) -> dict[str, Scenario]:
    """Probes by name, for these sizes (values of 4 bytes, rising), each of `seconds` s or a few exchanges.

    `rate`: of the cards, bytes/s, if it is known. The first of the sizes is one value.
    """
    one, *larger = sizes
    middle = larger[len(larger) // 2 - 1]
    chosen: list[tuple[str, int, int, int, Mapping[str, Any]]] = [(ONE, one, 1, 1, _ASYNCHRONOUS)]
    chosen += [(f"1 worker, {4 * size:,} B", size, 1, 1, _ASYNCHRONOUS) for size in larger]
    chosen += [
        (FAN_OUT, one, 2, 1, _BARRIER),
        (BACKLOG, 8 * one, 1, 1, _IN_A_ROW),
        (f"2 workers at a barrier, {4 * middle:,} B", middle, 2, 1, _BARRIER),
        (f"2 workers, {4 * middle:,} B", middle, 2, 1, _ASYNCHRONOUS),
        (f"1 worker, 2 shards of {2 * middle:,} B", middle, 1, 2, _ASYNCHRONOUS),
        ("ring of 2, 1 value each", 2 * one, 2, 1, _RING),
        (f"ring of 2, {2 * middle:,} B each", middle, 2, 1, _RING),
        (f"ring of 2, {2 * larger[-2]:,} B each", larger[-2], 2, 1, _RING),
    ]
    return {
        name: _probe(name, size, workers, servers, strategy, rate, seconds)
        for name, size, workers, servers, strategy in chosen
    }


def _probe(
    name: str,
    size: int,
    workers: int,
    servers: int,
    strategy: Mapping[str, Any],
    rate: float | None,
    seconds: float,
) -> Scenario:
    time: dict[str, Any] = {"distribution": "constant", "value": f"{PACE_S} s"}
    if workers == 2 and strategy is _ASYNCHRONOUS:  # two that never meet would stay in step for ever
        time = {"distribution": "gamma", "mean": f"{PACE_S} s", "cv": 0.2}
    least = _LEAST * (PACE_S + 2 * workers * 4 * size / rate) if rate else 0.0
    document = {
        "name": name,
        "cluster": {
            "workers": workers,
            "servers": servers,
            "network": {"bandwidth": f"{rate} B/s"} if rate else {},
            "compute": {"time": time},
        },
        "workload": {"parameters": size},
        "strategy": dict(strategy),
        "stop": {"time": f"{min(_MOST_S, max(seconds, least))} s"},
    }
    return Scenario.model_validate(document)
