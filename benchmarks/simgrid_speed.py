"""How fast the simulator is next to SimGrid: asynchronous training with one parameter server, sizes only.

Run: make bench. The scenario is simulation_speed.py's, written for SimGrid in its S4U: in C++ where g++ and
libsimgrid-dev are, else in Python. Ours keeps its records; of both, the set-up is left out. Rates are per
second of the processor; they take turns, and the ratio of their best of three is what counts.

Both get the same compute times, and must predict the same duration of the first CHECKED steps. Not of all:
the system itself is chaotic. Near saturation, a push that comes a little sooner slows all others: a change of
1e-15 in the compute times grows tenfold every two to four steps of 64 or 128 workers. It does so in a plain
simulation of two processor-sharing stations too, and between two configurations of SimGrid.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

from simulation_speed import REPEATS, scenario

from lockstep import Scenario
from lockstep.job.plan import Plan
from lockstep.simulator.engine import Simulation
from lockstep.studies.verification import simgrid
from lockstep.workloads import sizes
from lockstep.workloads.compute_time import compute_times

HERE = Path(__file__).parent
TARGET = {128: 1.0, 1000: 10.0}  # workers: times SimGrid's rate
CHECKED = 10
# As in studies/verification/simgrid_child.py, with SimGrid's usual precision and what makes it fastest here.
# Slower: the default network/optim:Lazy, network/solver:fairbottleneck and bmf. No faster:
# sendto() without a server.
CONFIGURATION = [
    "--log=root.thresh:error",
    *("--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0", "--cfg=network/crosstraffic:0"),
    *("--cfg=network/weight-S:0", "--cfg=network/bandwidth-factor:1", "--cfg=network/latency-factor:1"),
    "--cfg=network/optim:Full",
]


def program(folder: Path) -> tuple[str, list[str]] | None:
    """The language of the SimGrid program and its command; None where there is no SimGrid."""
    if compiler := shutil.which("g++"):
        binary = str(folder / "simgrid_async")
        build = [compiler, "-O2", "-o", binary, str(HERE / "simgrid_async.cpp"), "-lsimgrid"]
        if subprocess.run(build, capture_output=True, check=False).returncode == 0:
            return "C++", [binary]
    if python := simgrid.python():
        return "Python", [python, str(HERE / "simgrid_async.py")]
    return None


def ours(described: Scenario) -> tuple[float, float]:
    """The virtual instant of the last answer, and the processor's time that it took, in s."""
    simulation = Simulation(Plan.of(described))
    start = time.process_time()
    simulation.run()
    real, records = time.process_time() - start, simulation.recorder.frame()
    return float(records["end"][records["kind"] == "parameters"].max()), real


def theirs(command: list[str], described: Scenario, folder: Path) -> tuple[float, float]:
    """The same of SimGrid."""
    size, network = sizes(described.workload), described.cluster.network
    workers, steps = described.cluster.workers, described.stop.steps
    drawn = array("d", (times.draw(0.0) for times in compute_times(described, size) for _ in range(steps)))
    file = folder / "compute_times"
    file.write_bytes(drawn.tobytes())
    servers = described.cluster.servers
    shards = servers.count if servers.colocated else 0
    values = map(str, [workers, shards, steps, size.nbytes, network.bandwidth, network.latency, file])
    done = subprocess.run([*command, *values, *CONFIGURATION], capture_output=True, text=True, check=True)
    virtual, real = map(float, done.stdout.split())
    return virtual, real


def compared(command: list[str], workers: int, folder: Path) -> tuple[float, float, float]:
    """Our rate, SimGrid's, and the relative difference of the durations of the first steps."""
    steps = max(CHECKED, 20_000 // workers)
    checked = [times[0] for times in once(command, scenario("asynchronous", workers, CHECKED), folder)]
    whole = scenario("asynchronous", workers, steps)
    pairs = [[times[1] for times in once(command, whole, folder)] for _ in range(REPEATS)]
    rates = [workers * steps / min(seconds) for seconds in zip(*pairs, strict=True)]
    return rates[0], rates[1], abs(checked[0] - checked[1]) / checked[1]


def once(command: list[str], described: Scenario, folder: Path) -> list[tuple[float, float]]:
    """Ours and SimGrid's virtual instant of the last answer, and the processor's time, in s."""
    return [ours(described), theirs(command, described, folder)]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = program(folder)
        if found is None:
            print(
                "SimGrid: skipped, it is not installed (Debian: libsimgrid-dev and g++, or python3-simgrid)"
            )
            return
        language, command = found
        print(f"Asynchronous parameter server, worker-iterations/s of processor time; SimGrid in {language}")
        print(
            f"{'workers':>8} {'ours':>10} {'SimGrid':>10} {'ratio':>7} {'target':>7} {'durations apart':>16}"
        )
        for workers, target in TARGET.items():
            rate, other, apart = compared(command, workers, folder)
            print(f"{workers:8} {rate:10,.0f} {other:10,.0f} {rate / other:7.2f} {target:7.1f} {apart:16.1e}")
            if apart > 1e-6:
                sys.exit(
                    f"With {workers} workers SimGrid predicts another duration of the first {CHECKED} steps."
                )


if __name__ == "__main__":
    main()
