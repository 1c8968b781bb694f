"""What a GPU does in real runs: first and later times, prediction and measurement, memory, bodies' rates.

Run: python benchmarks/gpu.py [PART …], on a machine with a GPU; about five minutes, all on its first one.
Parts: predicted, first, bodies, memory. `small` beside them tries the script itself, with a small model.
docs/gpu.md keeps what was seen.
"""

import importlib
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import worker_memory

import lockstep
from lockstep import Result
from lockstep.calibration.apply import _times, update_rules
from lockstep.executor import process
from lockstep.executor.devices import free_bytes, named, own
from lockstep.executor.room import _on_gpu
from lockstep.loopback import measure_loopback
from lockstep.validation import on_loopback, parameters

SMALL = "small" in sys.argv
STEPS = 8 if SMALL else 20
IMAGES: dict[str, Any] = {"dataset": "digits", "model": "mlp", "batch_size": 4}
TEXT: dict[str, Any] = {"model": "transformer", "dataset": "sentences", "batch_size": 32}
if not SMALL:
    IMAGES = {"dataset": "fake", "model": "resnet50", "batch_size": 256}
    TEXT |= {"layers": 6, "hidden": 512, "heads": 8}
WIDTHS = (256, 384) if SMALL else (2048, 4096)  # of layers whose memory is compared
BF16: dict[str, Any] = {} if SMALL else {"precision": "bf16"}
ON_GPU = {"count": 1, "device": "auto"}
ADAM = {"name": "all-reduce", "optimizer": "adam", "learning_rate": 0.001}
the_real_main = process.main

JOBS: dict[str, dict[str, Any]] = {
    "alone": {"workload": IMAGES, "cluster": {"workers": 1}, "strategy": "all-reduce"},
    "alone, bf16": {"workload": IMAGES | BF16, "cluster": {"workers": 1}, "strategy": "all-reduce"},
    "text, adam": {"workload": TEXT, "cluster": {"workers": 1}, "strategy": ADAM},
    "server on the CPU": {"workload": IMAGES, "cluster": {"workers": 1}, "strategy": "synchronous"},
    "server on the GPU": {
        "workload": IMAGES,
        "cluster": {"workers": 1, "servers": ON_GPU},
        "strategy": "synchronous",
    },
    "two workers on the GPU": {"workload": IMAGES, "cluster": {"workers": 2}, "strategy": "all-reduce"},
}


def described(job: dict[str, Any], **cluster: Any) -> lockstep.Scenario:
    """The scenario of a job, with measured gradients."""
    document = {"name": "gpu", "stop": {"steps": STEPS}, "seed": 1, **job}
    document["cluster"] = {"network": {}, **job["cluster"], **(cluster or {"compute": "measured"})}
    folder = Path(tempfile.mkdtemp())
    (folder / "gpu.yaml").write_text(json.dumps(document))
    return lockstep.load(folder / "gpu.yaml")


def step_s(result: Result) -> float:
    """The median time from one update to the next of node 0, or of the server."""
    updates = result.records[result.records["event"] == "update"]
    ends = updates[updates["node"] == updates["node"].min()]["end"]
    return float(ends.diff().iloc[3:].median())


def update(device: str) -> dict[str, str]:
    """What an update by sgd takes there: of a few parameters, and of 25 million."""
    rule, pushes = update_rules()["sgd"]
    few, many = (_times(rule, pushes, length, 0.1, torch.device(device)) for length in (1000, 25_000_000))
    overhead, seconds = median(few[1]), median(many[1])
    bandwidth = (many[0] - few[0]) / (seconds - overhead)
    return {"apply_overhead": f"{overhead!r} s", "memory_bandwidth": f"{bandwidth!r} B/s"}


def predicted() -> None:
    """A step, predicted from a few gradients, updates and messages of this machine, and measured."""
    updates = {device: update(device) for device in ("cpu", own())}
    print(f"\nupdates: {updates}")
    print(f"{'predicted and measured':32} {'predicted, ms':>14} {'measured, ms':>13} {'error':>7}")
    for name, job in JOBS.items():
        config = described(
            job, compute="measured", **updates["cpu" if name == "server on the CPU" else own()]
        )
        there = on_loopback(config, measure_loopback(parameters(config)))
        by_sizes = there.workload.model_copy(update={"learning": False})  # whose numbers nobody looks at
        times = [step_s(lockstep.simulate(there.model_copy(update={"workload": by_sizes})))]
        times.append(step_s(lockstep.run(config, attempts=1)))
        shown = "".join(f"{1e3 * time:14.3f}" for time in times)
        print(f"{name:32}{shown} {times[0] / times[1] - 1:+7.1%}", flush=True)


def first() -> None:
    """Of each kind of event the first one's time, and the median of the later ones."""
    print(f"\n{'first and later, ms':32} {'event':>10} {'first':>10} {'median':>10}")
    for name, job in JOBS.items():
        records = lockstep.run(described(job), attempts=1).records
        for (event, node), its in records.groupby(["event", "node"]):
            taken = 1e3 * (its["end"] - its["start"])
            if event in ("gradient", "work", "collective") and len(taken) > 3 and taken.median() > 0.001:
                print(
                    f"{name:32} {event:>10} {taken.iloc[0]:10.3f} {taken.iloc[1:].median():10.3f} node {node}"
                )


def main_through_the_host(*arguments: Any) -> None:
    """A process of a run whose bodies go through the host's memory."""
    process.agree = lambda *_: None
    the_real_main(*arguments)


def bodies() -> None:
    """A model that goes from worker to worker, from GPU to GPU and through the host's memory."""
    width = 256 if SMALL else 2048
    print(f"\n{'bodies':32} {'MB':>6} {'message, ms':>13} {'gradient, ms':>13}")
    slower = importlib.import_module("gpu").main_through_the_host  # which processes can import
    for way, main in (("from GPU to GPU", the_real_main), ("through the host", slower)):
        process.main = main
        config = lockstep.scenario(
            worker_memory.layers, {"width": width}, batch_size=2, stop={"steps": STEPS},
            cluster={"workers": 2, "network": {}, "compute": "measured"}, strategy="d-psgd",
        )  # fmt: skip
        records, nbytes = lockstep.run(config, attempts=1).records, lockstep.check(config).sizes.nbytes
        messages, gradients = (records[records["event"] == event] for event in ("message", "gradient"))
        taken = [1e3 * (its["end"] - its["start"]).iloc[4:].median() for its in (messages, gradients)]
        print(f"{way:32} {nbytes / 1e6:6.0f} {taken[0]:13.3f} {taken[1]:13.3f}", flush=True)
    process.main = the_real_main


def memory() -> None:
    """What processes take of the GPU, in model sizes: the slope between two models, and what is counted."""
    print(f"\n{'memory, all processes together':32} {'model sizes':>12} {'counted':>8} {'besides, MB':>12}")
    sizes = [worker_memory.LAYERS * width**2 * 4 for width in WIDTHS]
    for name in ("synchronous", "all-reduce, adam", "d-psgd"):
        taken, counted = [], []
        for width in WIDTHS:
            config = worker_memory.scenario(width, worker_memory.FAMILIES[name])
            taken.append(_taken(partial(lockstep.run, config)))
            plan = lockstep.check(config)
            counted.append(sum(_on_gpu(plan, rank) for rank in plan.workers))
        slope, count = (np.diff(values)[0] / np.diff(sizes)[0] for values in (taken, counted))
        rest = (taken[0] - slope * sizes[0]) / 1e6
        print(f"{name:32} {slope:12.2f} {count:8.2f} {rest:12.0f}", flush=True)


def _taken(run: Callable[[], Any]) -> float:
    free, over, least = _free(), threading.Event(), [float("inf")]

    def look() -> None:
        while not over.wait(0.005):
            least[0] = min(least[0], _free())

    watching = threading.Thread(target=look)
    watching.start()
    try:
        run()
    finally:
        over.set()
        watching.join()
    return free - least[0]


def _free() -> float:
    return free_bytes(torch.device(own()))


def main() -> None:
    parts = [part for part in (predicted, first, bodies, memory) if part.__name__ in sys.argv[1:]]
    print(f"{named(own())}, torch {torch.__version__}")
    for part in parts or (predicted, first, bodies, memory):
        part()


if __name__ == "__main__":
    main()
