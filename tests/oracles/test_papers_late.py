"""Strategies in which gradients come late, by hand from their papers and authors' code (by_hand.py)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.by_hand import (
    LATENCY,
    RATE,
    WORKERS,
    Agenda,
    Gradient,
    Vector,
    begin,
    config,
    ends_with,
    finished,
    named,
)

STEPS = 12
EVERYONE = range(WORKERS)
Hand = Callable[[Vector, Gradient], Vector]
Memory = dict[str, Any]

# ------------------------------------------------------------- every gradient as it comes; at τ it has missed

Step = Callable[[Vector, Vector, int, Vector, Memory], Vector]  # x, g, τ, what was pulled, memory → x


def each(step: Step) -> Hand:
    def hand(x: Vector, g: Gradient) -> Vector:
        pulled, missed, memory = [x] * WORKERS, [0] * WORKERS, Memory()
        for i, k in finished(STEPS):
            x = step(x, g(pulled[i], i, k), missed[i], pulled[i], memory)
            missed = [count + 1 for count in missed]
            pulled[i], missed[i] = x, 0
        return x

    return hand


def plain(x: Vector, g: Vector, tau: int, pulled: Vector, memory: Memory) -> Vector:
    return x - RATE * g


def staleness_aware(x: Vector, g: Vector, tau: int, pulled: Vector, memory: Memory) -> Vector:
    """Zhang, Gupta et al. 2016, eq. 6."""
    return x - RATE / max(tau, 1) * g


def staleness_aware_rmsprop(x: Vector, g: Vector, tau: int, pulled: Vector, memory: Memory) -> Vector:
    memory["h"] = 0.99 * memory.get("h", 0) + 0.01 * g * g
    return x - 0.01 / max(tau, 1) * g / (np.sqrt(memory["h"]) + 1e-8)


def dc_asgd(x: Vector, g: Vector, tau: int, pulled: Vector, memory: Memory) -> Vector:
    """Zheng et al. 2017, eq. 10."""
    return x - RATE * (g + 0.5 * g * g * (x - pulled))


def dc_asgd_adaptive(x: Vector, g: Vector, tau: int, pulled: Vector, memory: Memory) -> Vector:
    memory["ms"] = 0.95 * memory.get("ms", 0) + 0.05 * g * g
    return x - RATE * (g + 2 / np.sqrt(memory["ms"] + 1e-7) * g * g * (x - pulled))


# ------------------------------------------------------------- windows, as in dist-keras: commit, then pull

Commit = Callable[[Vector, int, Vector, int], Vector]  # Δ, τ, x̃ − what was pulled, steps → what is added


def windows(commit: Commit, window: int = 5) -> Hand:
    def hand(x: Vector, g: Gradient) -> Vector:
        local, pulled, missed, since = [x] * WORKERS, [x] * WORKERS, [0] * WORKERS, [0] * WORKERS
        for i, k in finished(STEPS):
            local[i], since[i] = local[i] - RATE * g(local[i], i, k), since[i] + 1
            if since[i] == window or k + 1 == STEPS:
                x = x + commit(local[i] - pulled[i], missed[i], x - pulled[i], since[i])
                missed = [count + 1 for count in missed]
                local[i] = pulled[i] = x
                missed[i] = since[i] = 0
        return x

    return hand


def by_distance(delta: Vector, tau: int, moved: Vector, made: int) -> Vector:
    """Hermans' thesis: Δ ⊙ 1/((x̃ₜ − x̃ₜ₋τ)²/η + 1)."""
    return delta / (moved**2 / RATE + 1)


def normalised_by_distance(delta: Vector, tau: int, moved: Vector, made: int) -> Vector:
    """dist-keras' `Experimental`, with the rate for its own: of the window's mean."""
    return by_distance(delta / made, tau, moved, made)


# ------------------------------------------------------------- gathering k gradients (Dutta et al. 2018, §2)


def gathering(k: int, *, waits: bool = False, drops: bool = False, cancels: bool = False) -> Hand:
    """`waits`: who has pushed, for the update; `drops`: late gradients; `cancels`: all start anew."""

    def hand(x: Vector, g: Gradient) -> Vector:
        made, version, round_, got = [0] * WORKERS, 0, [0] * WORKERS, list[tuple[int, Vector]]()
        agenda = Agenda()

        def begins(i: int) -> None:
            round_[i] += 1
            agenda.compute(i, finishes, round_[i], x, version)

        def finishes(i: int, round_then: int, at: Vector, version_then: int) -> None:
            nonlocal x, version
            if round_then != round_[i] or version == 10:
                return  # it was cancelled, or the run is over
            gradient = g(at, i, made[i])
            made[i] += 1
            if drops and version_then < version:
                return begins(i)
            got.append((i, gradient))
            if len(got) < k:
                return None if waits else begins(i)
            x, version = x - RATE * np.mean([pushed for _, pushed in got], axis=0), version + 1
            again = {other for other, _ in got} if waits else {i}
            if cancels:
                for other in set(EVERYONE) - (again if waits else set()):
                    made[other] += 1  # a mini-batch that was begun is used up
                again = set(EVERYONE)
            got.clear()
            for other in sorted(again):
                begins(other)
            return None

        for i in EVERYONE:
            begins(i)
        agenda.run()
        return x

    return hand


def soft_sync_over_staleness(x: Vector, g: Gradient) -> Vector:
    """Zhang, Gupta et al. 2016, eqs. 5 and 6: θ ← θ − (1/c)Σ(α₀/τ)g, with c = ⌊λ/n⌋ = 2."""
    pulled, versions, version, got = [x] * WORKERS, [0] * WORKERS, 0, list[Vector]()
    for i, k in finished(STEPS):
        got.append(RATE / max(version - versions[i], 1) * g(pulled[i], i, k))
        if len(got) == 2:
            x, version, got = x - sum(got) / 2, version + 1, []
        pulled[i], versions[i] = x, version
    return x


# ------------------------------------------------------------- with a network


def ssp(bound: int, prefetch: bool) -> Hand:
    """Ho et al. 2013, §3: at clock c read a copy with everyone's first c − s updates, and all own ones."""

    def hand(x: Vector, g: Gradient) -> Vector:
        agenda, clocks, left = Agenda(), [0] * WORKERS, set[int]()  # the server's
        asking: list[int] = []
        own: list[list[Vector]] = [[] for _ in EVERYONE]
        copies, awaited = [(x, 0, 0)] * WORKERS, [False] * WORKERS  # of which clock, with how many own

        def arrives(i: int, change: Vector) -> None:
            nonlocal x
            x, clocks[i] = x + change, clocks[i] + 1
            if prefetch:
                asking.append(i)
            answers()

        def asks(i: int) -> None:
            asking.append(i)
            answers()

        def leaves(i: int) -> None:
            left.add(i)
            answers()

        def answers() -> None:
            slowest = min((clocks[i] for i in EVERYONE if i not in left), default=STEPS)
            for i in [i for i in asking if clocks[i] - bound <= slowest]:
                asking.remove(i)
                agenda.after(LATENCY, comes, i, (x, slowest, clocks[i]))

        def comes(i: int, copy: tuple[Vector, int, int]) -> None:
            copies[i] = copy
            if awaited[i]:
                reads(i)

        def reads(i: int) -> None:
            shared, clock, included = copies[i]
            fresh = clock >= len(own[i]) - bound
            if not fresh and not prefetch:
                agenda.after(LATENCY, asks, i)
            awaited[i] = not fresh
            if fresh:
                agenda.compute(i, finishes, shared + sum(own[i][included:], 0 * shared))

        def finishes(i: int, at: Vector) -> None:
            change = -RATE * g(at, i, len(own[i]))
            own[i].append(change)
            agenda.after(LATENCY, arrives, i, change)
            if len(own[i]) < STEPS:
                reads(i)
            else:
                agenda.after(LATENCY, leaves, i)

        for i in EVERYONE:
            agenda.after(2 * LATENCY, agenda.compute, i, finishes, x)
        agenda.run()
        return x

    return hand


def downpour(push: int, fetch: int) -> Hand:
    """Dean et al. 2012, algorithm 7.1: parameters that come replace the worker's at any time."""

    def hand(x: Vector, g: Gradient) -> Vector:
        agenda, made, fetching = Agenda(), [0] * WORKERS, [False] * WORKERS
        parameters, accrued = [x] * WORKERS, [0 * x] * WORKERS

        def arrives(gradients: Vector) -> None:
            nonlocal x
            x = x - RATE * gradients

        def asked(i: int) -> None:
            agenda.after(LATENCY, comes, i, x)

        def comes(i: int, fetched: Vector) -> None:
            parameters[i], fetching[i] = fetched, False

        def finishes(i: int, at: Vector) -> None:
            gradient = g(at, i, made[i])
            made[i] += 1
            accrued[i], parameters[i] = accrued[i] + gradient, parameters[i] - RATE * gradient
            if made[i] % push == 0 or made[i] == STEPS:
                agenda.after(LATENCY, arrives, accrued[i])
                accrued[i] = 0 * x
            if made[i] == STEPS:
                return
            if made[i] % fetch == 0 and not fetching[i]:
                fetching[i] = True
                agenda.after(LATENCY, asked, i)
            agenda.compute(i, finishes, parameters[i])

        for i in EVERYONE:
            agenda.after(2 * LATENCY, agenda.compute, i, finishes, x)
        agenda.run()
        return x

    return hand


def bounded_delay(bound: int) -> Hand:
    """Li et al. 2014, §3.4: a task waits for all that are more than `bound` older, by everyone."""

    def hand(x: Vector, g: Gradient) -> Vector:
        agenda, arrived, left = Agenda(), [0] * WORKERS, set[int]()
        made, done, answered = [0] * WORKERS, [0] * WORKERS, [0] * WORKERS
        newest, idle = [x] * WORKERS, [False] * WORKERS

        def arrives(i: int, gradient: Vector) -> None:
            nonlocal x
            x, arrived[i] = x - RATE * gradient, arrived[i] + 1
            answers()

        def leaves(i: int) -> None:
            left.add(i)
            answers()

        def answers() -> None:
            slowest = min((arrived[i] for i in EVERYONE if i not in left), default=STEPS)
            for i in EVERYONE:
                while answered[i] < min(slowest, arrived[i]):
                    answered[i] += 1
                    agenda.after(LATENCY, comes, i, x)

        def comes(i: int, parameters: Vector) -> None:
            newest[i], done[i] = parameters, done[i] + 1
            if idle[i]:
                goes_on(i)

        def goes_on(i: int) -> None:
            idle[i] = made[i] - done[i] > bound
            if not idle[i] and made[i] < STEPS:
                agenda.compute(i, finishes, newest[i])

        def finishes(i: int, at: Vector) -> None:
            agenda.after(LATENCY, arrives, i, g(at, i, made[i]))
            made[i] += 1
            if made[i] < STEPS:
                goes_on(i)

        for i in EVERYONE:
            agenda.after(2 * LATENCY, goes_on, i)
        agenda.run()
        return x

    return hand


RMSPROP = {"optimizer": "rmsprop", "learning_rate": 0.01}
FIVE = {"communication_window": 5}
AT_ONCE: list[tuple[dict[str, Any], Hand]] = [
    ({"name": "asynchronous"}, each(plain)),
    ({"name": "staleness-aware"}, each(staleness_aware)),
    ({"name": "staleness-aware", **RMSPROP}, each(staleness_aware_rmsprop)),
    ({"name": "dc-asgd", "compensation": 0.5}, each(dc_asgd)),
    ({"name": "dc-asgd", "adaptive_compensation": True}, each(dc_asgd_adaptive)),
    ({"name": "downpour-blocking", **FIVE}, windows(lambda delta, tau, moved, made: delta)),
    ({"name": "agn", **FIVE}, windows(lambda delta, tau, moved, made: delta / made)),
    ({"name": "adag", **FIVE}, windows(lambda delta, tau, moved, made: delta / made)),
    ({"name": "dynsgd", **FIVE}, windows(lambda delta, tau, moved, made: delta / (tau + 1))),
    ({"name": "adag-distance", **FIVE}, windows(by_distance)),
    ({"name": "agn", "correction": "adag-distance", **FIVE}, windows(normalised_by_distance)),
    ({"name": "soft-sync", "n": 2, "correction": "staleness-aware"}, soft_sync_over_staleness),
    ({"name": "hogwild"}, each(plain)),  # where additions take no time
]
TEN_UPDATES: list[tuple[dict[str, Any], Hand]] = [
    ({"name": "backup-workers", "backups": 2}, gathering(2, waits=True, drops=True)),
    ({"name": "k-sync", "k": 2}, gathering(2, waits=True, cancels=True)),
    ({"name": "k-batch-sync", "k": 5}, gathering(5, cancels=True)),
    ({"name": "k-async", "k": 2}, gathering(2, waits=True)),
    ({"name": "k-batch-async", "k": 6}, gathering(6)),
    ({"name": "soft-sync", "n": 2}, gathering(2)),
]
OVER_A_NETWORK: list[tuple[dict[str, Any], Hand]] = [
    *(({"name": "ssp", "bound": bound}, ssp(bound, True)) for bound in (0, 1, 3)),
    *(({"name": "ssp", "bound": bound, "prefetch": False}, ssp(bound, False)) for bound in (0, 1, 3)),
    *(
        ({"name": "downpour", "push_period": push, "fetch_period": fetch}, downpour(push, fetch))
        for push, fetch in ((1, 1), (3, 3), (2, 5), (4, 1))
    ),
    *(({"name": "bounded-delay", "bound": bound}, bounded_delay(bound)) for bound in (0, 1, 3)),
]


@pytest.mark.parametrize(("strategy", "hand"), AT_ONCE, ids=named)
def test_at_once(strategy: dict[str, Any], hand: Hand) -> None:
    run = config(strategy, stop={"steps": STEPS})
    ends_with(run, hand(*begin(run)))


@pytest.mark.parametrize(("strategy", "hand"), TEN_UPDATES, ids=named)
def test_gathering(strategy: dict[str, Any], hand: Hand) -> None:
    run = config(strategy, stop={"updates": 10})
    ends_with(run, hand(*begin(run)))


@pytest.mark.parametrize(("strategy", "hand"), OVER_A_NETWORK, ids=named)
def test_over_a_network(strategy: dict[str, Any], hand: Hand) -> None:
    run = config(strategy, latency=True, stop={"steps": STEPS})
    ends_with(run, hand(*begin(run)))


# ------------------------------------------------------------- two workers, of whom each has one neighbour


def test_two_workers_of_ad_psgd() -> None:
    """Lian et al. 2018, algorithm 1: the gradient is at the model from before the averaging."""
    run = config({"name": "ad-psgd"}, workers=2, stop={"steps": STEPS})
    x, g = begin(run)
    models, read = [x, x], [x, x]
    for i, k in finished(STEPS, 2):
        models[i] = models[i] - RATE * g(read[i], i, k)
        read[i] = models[i]
        if i == 0 and k + 1 < STEPS:
            models = [(models[0] + models[1]) / 2] * 2
    ends_with(run, np.mean(models, axis=0))


def test_two_workers_of_gossip() -> None:
    """Blot et al. 2016: a push after every mini-batch, merged before the other's next one."""
    run = config({"name": "gossip", "probability": 1.0}, workers=2, stop={"steps": STEPS})
    x, g = begin(run)
    models, weights = [x, x], [0.5, 0.5]
    queues: list[list[tuple[Vector, float]]] = [[], []]

    def merge(i: int) -> None:
        for model, weight in queues[i]:
            models[i] = (weights[i] * models[i] + weight * model) / (weights[i] + weight)
            weights[i] += weight
        queues[i].clear()

    for i, k in finished(STEPS, 2):
        models[i] = models[i] - RATE * g(models[i], i, k)
        weights[i] /= 2
        queues[1 - i].append((models[i], weights[i]))
        merge(i)
    merge(0)
    merge(1)
    ends_with(run, np.mean(models, axis=0))
