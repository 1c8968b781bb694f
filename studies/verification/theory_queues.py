"""Closed forms of asynchronous training as a closed queueing network.

N workers compute for Z seconds on average (no queue), then go through the server's links, which divide
themselves equally among the messages upon them (processor sharing). With independent compute times that has a
product form which depends on the means alone (Baskett, Chandy, Muntz and Palacios 1975). A full-duplex server
is two stations in series: pushes come in over one link and parameters leave over the other. A half-duplex one
is a single station with the sum of both.
"""

from collections.abc import Sequence
from math import perm


def machine_repairman(workers: int, think: float, transfer: float) -> float:
    """Cycles per second through one station: X(N) = (1 − p₀)/S, 1/p₀ = Σ_k N!/(N−k)!·(S/Z)^k.

    `think` Z and the transfer alone S in seconds.
    """
    idle = 1 / sum(perm(workers, k) * (transfer / think) ** k for k in range(workers + 1))
    return (1 - idle) / transfer


def mean_value_analysis(workers: int, think: float, transfers: Sequence[float]) -> float:
    """Cycles per second through stations in series, exact (Reiser and Lavenberg 1980).

    `transfers` are the stations' service times alone, in seconds. One station is the machine repairman.
    """
    queue, rate = [0.0] * len(transfers), 0.0
    for n in range(1, workers + 1):
        times = [s * (1 + q) for s, q in zip(transfers, queue, strict=True)]
        rate = n / (think + sum(times))
        queue = [rate * time for time in times]
    return rate


def asymptotes(workers: int, think: float, transfers: Sequence[float]) -> float:
    """The least upper bound by means: min(N/(Z + ΣS), 1/max S) cycles per second."""
    return min(workers / (think + sum(transfers)), 1 / max(transfers))


def knee(think: float, transfers: Sequence[float]) -> float:
    """The number of workers at which the asymptotes cross: N* = (Z + ΣS)/max S."""
    return (think + sum(transfers)) / max(transfers)
