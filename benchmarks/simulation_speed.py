"""How fast the simulator is: worker-iterations a second, next to raw SimPy timeouts in the same run.

Run: make bench. Prints a table; benchmarks/RESULTS.md keeps the last one with its date and machine.
Machines are noisy: each figure is the best of three, and the ratio to the raw timeouts is what counts.
"""

import platform
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import simpy

import lockstep
from lockstep import Scenario
from lockstep.job.plan import Plan
from lockstep.simulator.engine import Simulation
from lockstep.strategies import STRATEGIES, Contribution, Node, Strategy

REPEATS = 3
CASES = {
    "asynchronous": [16, 128, 1000, 10_000],
    "synchronous": [1000],
    "all-reduce": [64, 1024],
    "gossip": [1000],
}


async def gossip(node: Node) -> None:
    """Every step: a gradient, the parameters to one peer at random, the mean with whatever has arrived."""
    parameters, version = node.initial_parameters(), 0
    others = [worker for worker in node.workers if worker != node.rank]
    while await node.next_batch_available():
        parameters = parameters - 0.05 * await node.gradient(parameters)
        node.send(node.rng.choice(others), "model", parameters)
        while node.arrived("model"):
            parameters = (parameters + (await node.receive("model")).body) / 2
        version += 1
        await node.updated(version, parameters, [Contribution(node.rank, 0, 1)])


STRATEGIES["gossip"] = Strategy(gossip)


def scenario(strategy: str, workers: int, steps: int) -> Scenario:
    overrides = [
        f"cluster.workers={workers}",
        "cluster.servers=1",
        f"strategy={strategy}",
        f"stop.steps={steps}",
        "workload.parameters=1_000_000",
    ]
    return lockstep.load("sizes-only", overrides)


def best(once: Callable[[], float]) -> float:
    return max(once() for _ in range(REPEATS))


def raw_timeouts(processes: int = 1000, events: int = 200_000) -> float:
    """Timeouts a second of plain SimPy processes that do nothing else."""
    environment = simpy.Environment()

    def sleeper() -> Iterator[Any]:
        while True:
            yield environment.timeout(1)

    for _ in range(processes):
        environment.process(sleeper())
    start = time.process_time()
    for _ in range(events):
        environment.step()
    return events / (time.process_time() - start)


def iterations(strategy: str, workers: int) -> float:
    """Worker-iterations a second of the processor's time, records on, the set-up left out."""
    steps = max(20, 20_000 // workers)
    simulation = Simulation(Plan.of(scenario(strategy, workers, steps)))
    start = time.process_time()
    simulation.run()
    return workers * steps / (time.process_time() - start)


def pipeline_step(stages: int = 64, tensor: int = 1, replicas: int = 128, micro_batches: int = 256) -> float:
    """Seconds for a step of a split model, by its sizes: from the scenario to the metrics."""
    seconds = stages * tensor * micro_batches * 0.03
    document = {
        "name": "pipeline",
        "cluster": {
            "workers": stages * tensor * replicas,
            "workers_per_host": tensor,
            "network": {
                "bandwidth": f"{100 * tensor} Gbit/s",
                "intra_host": {"bandwidth": "1.6 TB/s", "latency": "10 us"},
            },
            "compute": {"time": {"distribution": "constant", "value": f"{seconds} s"}},
        },
        "workload": {
            "parameters": 1_557_611_200,
            "layers": stages,
            "batch_size": micro_batches,
            "activation": f"{micro_batches} MB",
        },
        "parallelism": {"pipeline": stages, "tensor": tensor, "micro_batches": micro_batches},
        "strategy": "all-reduce",
        "stop": {"steps": 1},
    }
    start = time.perf_counter()
    assert lockstep.simulate(Scenario.model_validate(document)).metrics["updates"]
    return time.perf_counter() - start


def main() -> None:
    print(f"{platform.platform()}, Python {platform.python_version()}, SimPy {simpy.__version__}")
    print(f"{'strategy':14} {'workers':>8} {'iterations/s':>13} {'raw timeouts/s':>15} {'timeouts each':>14}")
    for strategy, sizes in CASES.items():
        for workers in sizes:
            raw = best(raw_timeouts)
            rate = best(lambda s=strategy, w=workers: iterations(s, w))
            print(f"{strategy:14} {workers:8} {rate:13,.0f} {raw:15,.0f} {raw / rate:14.1f}")
    raw = best(raw_timeouts)
    for tensor in (1, 8):
        seconds = pipeline_step(tensor=tensor, replicas=128 // tensor)
        job = f"64 stages x {tensor} tensor x {128 // tensor} replicas x 256 micro-batches"
        print(f"a step of {job}: {seconds:.1f} s, {raw:,.0f} raw timeouts/s")
    print(f"memory at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
