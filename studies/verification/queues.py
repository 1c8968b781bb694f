"""Cases of `lockstep verify` about asynchronous training as a closed queue, on both sides of the knee."""

import numpy as np
import simpy

from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Link
from lockstep.strategies.resource import ResourceId
from lockstep.studies.verification import theory_queues as theory
from lockstep.studies.verification.case import (
    Case,
    Outcome,
    between_updates,
    constant,
    estimate,
    exact,
    exponential,
    grid,
    simulate,
)

THINK = 1.0  # s, of a gradient
TRANSFER = 0.1  # s, of a message alone on its links
LATENCY = 0.025  # s
BYTES = 100_000
UPDATES = 12_000
NETWORK = {"bandwidth": "1 MB/s", "latency": f"{LATENCY} s"}
TIMES = {
    "exponential": exponential(THINK),
    "lognormal": {"distribution": "lognormal", "mean": f"{THINK} s", "cv": 2.0},
}
STATIONS = [TRANSFER, TRANSFER]  # the server's down-link and its up-link


def full_duplex(workers: int, time: str) -> Outcome:
    """Seconds per update; latencies are thinking too, since nobody waits for them in a queue."""
    run = simulate(
        "asynchronous", {"updates": UPDATES}, workers=workers, time=TIMES[time], parameters=BYTES // 4,
        network=NETWORK,
    )  # fmt: skip
    rate = theory.mean_value_analysis(workers, THINK + 2 * LATENCY, STATIONS)
    return estimate(1 / rate, between_updates(run)[UPDATES // 10 :])


def half_duplex(workers: int) -> Outcome:
    """Pushes and parameters share one link: the machine repairman with both transfers' time."""
    run = simulate(
        "asynchronous", {"updates": UPDATES}, workers=workers, time=TIMES["exponential"],
        parameters=BYTES // 4, network={**NETWORK, "duplex": "half"},
    )  # fmt: skip
    rate = theory.machine_repairman(workers, THINK + 2 * LATENCY, sum(STATIONS))
    return estimate(1 / rate, between_updates(run)[UPDATES // 10 :])


def alone() -> Outcome:
    """One worker has no queue: Z + ΣS seconds per update."""
    run = simulate(
        "asynchronous", {"updates": 100}, workers=1, time=constant(THINK), parameters=BYTES // 4,
        network=NETWORK,
    )  # fmt: skip
    return exact(1 / theory.asymptotes(1, THINK + 2 * LATENCY, STATIONS), between_updates(run).mean())


def one_station(workers: int) -> Outcome:
    """N customers of one link of the simulator's: the machine repairman. Messages of every size, mean S."""
    environment = simpy.Environment()
    flows, link = Flows(environment), Link(ResourceId("other", "link", 0), BYTES / TRANSFER)
    rng, ends = np.random.default_rng(5), list[float]()

    def customer() -> simpy.events.ProcessGenerator:
        while True:
            yield environment.timeout(rng.exponential(THINK))
            gone = environment.event()
            flows.start((link,), rng.uniform(0, 2 * BYTES), gone.succeed)
            yield gone
            ends.append(environment.now)

    for _ in range(workers):
        environment.process(customer())
    while len(ends) < UPDATES:
        environment.step()
    rate = theory.machine_repairman(workers, THINK, TRANSFER)
    return estimate(1 / rate, np.diff(ends)[UPDATES // 10 :])


KNEE = round(theory.knee(THINK + 2 * LATENCY, STATIONS))
CASES: list[Case] = [
    Case("queue alone", alone),
    *grid(
        "queue server's two links, N={workers} {time}", full_duplex,
        workers=[KNEE // 3, KNEE, 3 * KNEE], time=list(TIMES),
    ),
    *grid("queue half-duplex server, N={workers}", half_duplex, workers=[2, 6, 18]),
    *grid("queue one link, N={workers}", one_station, workers=[1, 4, 11, 33]),
]  # fmt: skip
