"""Where speed is wanted: each case with its rival, or with the limit that no code can pass, in one run.

    python benchmarks/goals.py [--large] [PART OF A ROW'S NAME …]

Each row has a ratio of two measurements that took turns, and the ratio to reach; the seconds are of the best
turn. `--large`: also what takes minutes. A row that this machine cannot measure says why. RESULTS.md keeps
the last table.
"""

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from typing import NamedTuple

import executor_speed
import memory
import simgrid_speed
from simulation_speed import raw_timeouts
from start_up import COMMAND
from sweep_speed import SCENARIO

import lockstep
from lockstep import ScenarioError
from lockstep.job.plan import Plan
from lockstep.simulator.engine import Simulation
from lockstep.simulator.jit import installed
from lockstep.workloads import build, deterministic_threads

TURNS = 3
SWEEP = """
import atexit, sys, time
from lockstep.cli import main
from lockstep.simulator.engine import Simulation
events, run = 0.0, Simulation.run
def timed(simulation, *given):
    global events
    begin = time.process_time()
    run(simulation, *given)
    events += time.process_time() - begin
Simulation.run = timed
atexit.register(lambda: print(events, file=sys.stderr))
main()
"""
SHARE = """
import signal, sys
from pathlib import Path
import lockstep
file, seeds, out = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
its = Path(out + ".yaml")
its.write_text(Path(file).read_text().rpartition("seeds:")[0] + "seeds: " + seeds)
lockstep.sweep(its, out=out + "-first", jobs=1)
print("ready", flush=True)
signal.sigwait([signal.SIGUSR1])
lockstep.sweep(its, out=out, jobs=1)
"""
BYTECODE = tempfile.TemporaryDirectory()
PUSH_PULLS = 40

Measured = tuple[float, float]  # ours, and the rival's or the limit: the ratio is the first ÷ the second


class Row(NamedTuple):
    """A case: what is divided by what, how to measure it once, and the ratio to reach."""

    name: str
    of: str
    measure: Callable[[], Measured]
    reach: float
    large: bool = False


class Skipped(Exception):
    """Why a row cannot be measured here."""


def processor_s(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def simulation_s(*changes: str, base: str = "sizes-only") -> float:
    """The processor's time of a simulation with records, without its set-up and metrics."""
    simulation = Simulation(Plan.of(lockstep.load(base, changes)))
    return processor_s(simulation.run)


def star(workers: int, strategy: str = "asynchronous", *more: str, steps: int | None = None) -> list[str]:
    """The star with one server, as in simulation_speed.py."""
    return [
        *(f"cluster.workers={workers}", "cluster.servers=1", f"strategy={strategy}"),
        *(f"stop.steps={steps or max(20, 20_000 // workers)}", "workload.parameters=1_000_000", *more),
    ]


def timeouts(workers: int) -> Measured:
    """Raw SimPy timeouts in the time of a worker-iteration, and one timeout."""
    steps = max(20, 20_000 // workers)
    return simulation_s(*star(workers)) / (workers * steps), 1 / raw_timeouts()


def per_message(*changes: str, messages: float) -> Measured:
    """The processor's time of a message, and that of a raw timeout."""
    return simulation_s(*changes) / messages, 1 / raw_timeouts()


def queue(strategy: str, workers: int) -> Measured:
    """With `network.queue`, and without; five of each by turns, as one of these takes few milliseconds."""
    changes = star(workers, strategy, steps=20)
    queued = plain = 0.0
    for _ in range(5):
        queued += simulation_s(*changes, "cluster.network.queue=64 KiB") / 5
        plain += simulation_s(*changes) / 5
    return queued, plain


def rings(algorithm: str) -> Measured:
    """An all-reduce by messages, inside hosts too, and as many workers' plain ring, which is computed."""
    near = "cluster.network.intra_host={bandwidth: 100 Gbit/s}"
    changes = star(64, "all-reduce", "cluster.workers_per_host=8", near, steps=100)
    found = simulation_s(*changes, f"strategy={{name: all-reduce, algorithm: {algorithm}}}")
    return found, simulation_s(*star(64, "all-reduce", steps=100))


def beside(strategy: str) -> Measured:
    """Rings that take longer than a gradient, and go on beside it: computed, and by all their messages."""
    changes = star(64, strategy, "workload.parameters=100_000_000", steps=10)
    plan = Plan.of(lockstep.load("sizes-only", changes))
    computed, carried = Simulation(plan), Simulation(plan, shortcuts=False)
    return processor_s(computed.run), processor_s(carried.run)


def simgrid(workers: int, steps: int, *more: str) -> Measured:
    """Ours and SimGrid's time of the same run, of a step of all workers."""
    with tempfile.TemporaryDirectory() as name:
        found = simgrid_speed.program(Path(name))
        if found is None:
            raise Skipped("SimGrid is not installed (Debian: libsimgrid-dev and g++)")
        if found[0] != "C++" and more:
            raise Skipped("shards are only in the C++ program (Debian: libsimgrid-dev and g++)")
        scenario = lockstep.load("sizes-only", star(workers, "asynchronous", *more, steps=steps))
        (mine, ours), (its, theirs) = simgrid_speed.once(found[1], scenario, Path(name))
        if steps <= simgrid_speed.CHECKED and abs(mine - its) > 1e-6 * its:
            raise SystemExit(f"{workers} workers take {mine} s, of SimGrid {its} s")
    return ours / steps, theirs / steps


def learning(model: str) -> Measured:
    """By the clock: a simulation that learns, and the gradients that it computes, alone."""
    steps = 200  # a run computes the first 80 ms for itself
    scenario = lockstep.load(
        "quickstart",
        ["cluster.workers=8", "strategy=asynchronous", f"workload.model={model}", f"stop={{steps: {steps}}}"],
    )
    plan = Plan.of(scenario)
    learner = build(scenario.workload, plan.replicas, scenario.seed)
    parameters = learner.initial()
    begun = time.perf_counter()
    lockstep.simulate(scenario)
    simulated = time.perf_counter()
    with deterministic_threads():
        for step, worker in product(range(steps), range(8)):
            learner.gradient(parameters, worker, step)
    return simulated - begun, time.perf_counter() - simulated


def sweep(points: int) -> Measured:
    """`lockstep sweep --jobs 1` from the command to the table, and what its simulations' events take of it.

    Of one process: two, one after the other, were up to a fifth apart by the machine's speed alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        command = "-c", SWEEP, "sweep", str(file), "--out", f"{folder}/out", "--quiet", "--jobs=1"
        file.write_text(SCENARIO.format(seeds=1))
        command_s(*command)  # bytecode is there, as an installation has it
        shutil.rmtree(f"{folder}/out")
        file.write_text(SCENARIO.format(seeds=points // 20))
        before, whole = children_s(), started(*command)
        _, said = whole.communicate()
        if whole.returncode:
            raise RuntimeError(said)
        return children_s() - before, float(said.split()[-1])


def over_dask(points: int, processes: int) -> Measured:
    """By the clock: a sweep over a Dask cluster, and as many processes at once, each with its share, without.

    So a machine whose cores are too few, or slow each other down, counts against neither.
    """
    try:
        from distributed import LocalCluster
    except ImportError:
        raise Skipped("Dask is not installed (pip install 'lockstep[dask]')") from None
    with tempfile.TemporaryDirectory() as folder, LocalCluster(processes, threads_per_worker=1) as cluster:
        file = Path(folder) / "scenario.yaml"
        file.write_text(SCENARIO.format(seeds=points // 20))
        lockstep.sweep(file, out=f"{folder}/first", backend="dask", scheduler=cluster.scheduler_address)
        start = time.monotonic()
        lockstep.sweep(file, out=f"{folder}/dask", backend="dask", scheduler=cluster.scheduler_address)
        spread = time.monotonic() - start
        shares = [list(range(points // 20))[number::processes] for number in range(processes)]
        alone = [
            started("-c", SHARE, str(file), str(seeds), f"{folder}/{number}")
            for number, seeds in enumerate(shares)
        ]
        try:
            for each in alone:
                if each.stdout is None or not each.stdout.readline():
                    ended(each)  # says why
            start = time.monotonic()
            for each in alone:
                each.send_signal(signal.SIGUSR1)
            for each in alone:
                ended(each)
            return spread, time.monotonic() - start
        finally:
            for each in alone:
                each.kill()
                each.wait()


def children_s() -> float:
    """The processor's time of all commands that have ended, their processes' included."""
    used = os.times()
    return used.children_user + used.children_system


def started(*words: str) -> subprocess.Popen[str]:
    """A command of this Python.

    Its bytecode is kept in a folder for the next turn, whatever PYTHONDONTWRITEBYTECODE says, as an
    installation has it.
    """
    kept = {**os.environ, "PYTHONPYCACHEPREFIX": BYTECODE.name}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *words], stdout=pipe, stderr=pipe, text=True, env=kept)


def ended(command: subprocess.Popen[str]) -> None:
    _, said = command.communicate()
    if command.returncode:
        raise RuntimeError(said)


def command_s(*words: str, clock: Callable[[], float] = children_s) -> float:
    """The processor's time of a command, or its time by another clock."""
    before = clock()
    ended(started(*words))
    return clock() - before


def cold_start() -> Measured:
    """A sizes-only simulation, and the import of what it cannot do without; bytecode is there."""
    command = "-c", COMMAND, "simulate", "sizes-only"
    if not any(Path(BYTECODE.name).iterdir()):
        command_s(*command)
    ours = command_s(*command)
    return ours, command_s("-c", "import simpy, pandas, pydantic")


def first_gradient() -> Measured:
    """By the clock: from `lockstep run` of 8 processes to its first gradient; and `import torch`.

    The processor's time would be without that of the fork server, for which nobody waits. A run that may fail
    notes the gradients that it begins on disk. Each process has computed one before, for which clocks wait.
    """
    changes = {"cluster.workers": 7, "stop": "{steps: 1}", "strategy": "asynchronous"}
    changes |= {"cluster.stragglers": "[]", "recovery": "{checkpoint: {every: 100 updates}}"}
    flags = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as out:
        flags += ["--quiet", "--attempts", "1", "--out", f"{out}/out"]
        start = time.monotonic()
        run = started("-c", COMMAND, "run", "quickstart", *flags)
        while not any(Path(out).glob("out/incomplete/life-0/journal-*")):
            if run.poll() is not None:
                ended(run)
                raise RuntimeError("it has ended without a gradient")
            time.sleep(0.005)
        seconds = time.monotonic() - start
        ended(run)
    return seconds, command_s("-c", "import torch", clock=time.monotonic)


def push_pull() -> Measured:
    """25 MB and back between processes of one host, with the addition; and bare ZeroMQ."""
    return executor_speed.push_pull(executor_speed.LARGE, PUSH_PULLS, whole=True)()


def records_memory(steps: int) -> Measured:
    """The most bytes of a run with its records, and 32 for each record."""
    peak, records, _ = memory.peak(steps)
    return peak, 32.0 * records


def hundred_thousand() -> Measured:
    """10 steps of 100,000 workers with their records, from the command to its end, and what they may take."""
    peak, _, seconds = memory.peak(10, workers=100_000)
    if peak > 8e9:
        raise Skipped(f"it takes {peak / 1e9:.1f} GB, more than 8")
    return seconds, 300.0


def rows() -> Iterator[Row]:
    for workers, steps, reach in ((16, 40, 1.0), (32, 10, 1.0), (64, 10, 1 / 3)):
        shards = f"cluster.servers={{count: {workers}, colocated: true}}"
        measure = partial(simgrid, workers, steps, shards, "workload.parameters=1_024_000")
        yield Row(f"shards on all hosts, {workers}: a step", "SimGrid", measure, reach, workers > 32)
    for workers, servers in ((64, 64), (256, 256)):
        shards = f"cluster.servers={{count: {servers}, colocated: true}}"
        changes = [*star(workers, "asynchronous", shards, steps=2), "workload.parameters=25_600_000"]
        measure = partial(per_message, *changes, messages=5.0 * workers * servers)
        name = f"shards on all hosts, {workers}, full: a message"
        yield Row(name, "raw timeout", measure, inf, workers > 64)
    yield Row("star, 128 workers: a step", "SimGrid", partial(simgrid, 128, 150), 1 / 1.5)
    for workers, reach in ((16, 12.0), (1000, 14.0), (10_000, 18.0)):
        name = f"star, {workers} workers: an iteration"
        yield Row(name, "raw timeout", partial(timeouts, workers), reach, workers > 1000)
    yield Row("network.queue, star, 128 workers", "no queue", partial(queue, "asynchronous", 128), 1.5)
    yield Row("network.queue, ring, 32 workers", "no queue", partial(queue, "all-reduce", 32), 1.5)
    for workers, large in ((128, False), (1000, True)):
        degree = len({ahead for i in range(10) if 2**i < workers for ahead in (2**i, workers - 2**i)})
        d_psgd = [*star(workers, "{name: d-psgd, graph: exponential}", steps=10)]
        measure = partial(per_message, *d_psgd, messages=workers * 10.0 * degree)
        yield Row(f"d-psgd, exponential, {workers} workers: a message", "raw timeout", measure, 26.0, large)
    for algorithm, reach in (("ring", 1.8), ("two-level", 0.12), ("halving-doubling", 0.39)):
        name = f"{algorithm} inside hosts, 8 x 8 workers"
        yield Row(name, "plain ring", partial(rings, algorithm), reach)
    for strategy in ("pipe-sgd", "{name: streaming-diloco, averaging_period: 4, fragments: 4}"):
        yield Row(f"{strategy.strip('{}')}, 64 workers", "messages", partial(beside, strategy), 0.1)
    for model, reach in (("mlp", 1.1), ("cnn", 1.15)):
        yield Row(f"quickstart learns, {model}", "gradients", partial(learning, model), reach)
    yield Row("sweep of 100 points", "its events", partial(sweep, 100), 1.2)
    yield Row("sweep of 1,000 points", "its events", partial(sweep, 1000), 1.2, large=True)
    for processes in (2, 4):
        measure = partial(over_dask, 320, processes)
        yield Row(f"sweep over {processes} Dask processes", "shares at once", measure, 1 / 0.9, large=True)
    yield Row("25 MB push and pull, in a host", "bare ZeroMQ", push_pull, 0.5)
    yield Row("cold start, sizes only", "3 imports", cold_start, 1.3)
    yield Row("run of 8 processes, first gradient", "import torch", first_gradient, 1.5)
    yield Row("memory, 10,000 workers x 10 steps", "32 B a record", partial(records_memory, 10), 3.0)
    yield Row("memory, 10,000 workers x 100 steps", "32 B a record", partial(records_memory, 100), 3.0, True)
    yield Row("100,000 workers x 10 steps", "5 minutes", hundred_thousand, 1.0, large=True)


def shown(value: float, seconds: bool) -> str:
    if not seconds:
        return f"{value / 1e6:,.0f} MB"
    unit, factor = next(((u, f) for u, f in (("s", 1), ("ms", 1e3)) if value * f >= 1), ("us", 1e6))
    return f"{value * factor:.3g} {unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only rows with this in their names")
    parser.add_argument("--large", action="store_true", help="also what takes minutes")
    given = parser.parse_args()
    solver = "numba" if installed() else "Python"
    print(f"{platform.platform()}, Python {platform.python_version()}, links solved by {solver}")
    simulation_s(*star(16, steps=7000))  # so much that what numba compiles is loaded from here on
    print(f"Ratios: median [least, most] of {TURNS}")
    print(f"{'':42} {'ours':>9} {'':>9}  {'of':13} {'ratio':>7} {'':15} {'to reach':>8}")
    for row in rows():
        if (given.parts and not any(part in row.name for part in given.parts)) or row.large > given.large:
            continue
        try:
            turns = [row.measure() for _ in range(1 if row.large else TURNS)]
        except (Skipped, ScenarioError) as why:
            print(f"{row.name:42} left out: {why}", flush=True)
            continue
        ratios = sorted(ours / other for ours, other in turns)
        spread = f"[{ratios[0]:.3g}, {ratios[-1]:.3g}]"
        ours, other = (shown(min(values), "memory" not in row.name) for values in zip(*turns, strict=True))
        middle = ratios[len(ratios) // 2]
        print(
            f"{row.name:42} {ours:>9} {other:>9}  {row.of:13} {middle:7.3g} {spread:15} {row.reach:8.3g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
