"""Compute times from traces of the PyTorch profiler: a real one of the CPU, and one like a GPU's by hand."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

import lockstep
from lockstep.scenarios.kineto import gradients
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import SIZES

Event = dict[str, Any]
_CPU, _AUTOGRAD, _STREAM = 1, 2, 7  # threads
_MAIN = "autograd::engine::evaluate_function: "


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = _CPU, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args}


def annotation(name: str, ts: float, dur: float) -> Event:
    return event(name, ts, dur, "user_annotation")


def kernel(name: str, launch: float, ts: float, dur: float, number: int, tid: int = _CPU) -> list[Event]:
    """A launch on the CPU, and the kernel on the GPU."""
    return [
        event("cudaLaunchKernel", launch, 2, "cuda_runtime", tid, correlation=number),
        event(name, ts, dur, "kernel", _STREAM, correlation=number, stream=_STREAM),
    ]


def gpu_step(number: int, at: float) -> list[Event]:
    """The CPU is at it for 100 us; the gradient's kernels end 300 us after their first began, forward 100."""
    return [
        annotation(f"ProfilerStep#{number}", at, 100),
        event(f"ProfilerStep#{number}", at + 50, 380, "gpu_user_annotation", _STREAM),
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 1, 5),
        *kernel("augment", at + 2, at + 10, 5, 10 * number),
        event("aten::linear", at + 10, 20),
        *kernel("gemm", at + 12, at + 60, 100, 10 * number + 1),
        event(_MAIN + "AddmmBackward0", at + 40, 20, tid=_AUTOGRAD),
        *kernel("gemm", at + 45, at + 160, 150, 10 * number + 2, _AUTOGRAD),
        *kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 50, at + 200, 190, 10 * number + 3, _AUTOGRAD
        ),
        *kernel("gemm", at + 58, at + 310, 50, 10 * number + 4, _AUTOGRAD),
        annotation("Optimizer.step#SGD.step", at + 70, 20),
        *kernel("multi_tensor_apply_kernel", at + 75, at + 392, 40, 10 * number + 5),
    ]


def written(folder: Path, events: list[Event], name: str = "trace.json") -> Path:
    text = json.dumps({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": events}).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder / name


def test_a_gpus_gradient_is_from_its_first_kernel_to_its_last(tmp_path: Path) -> None:
    events = [e for number in range(3) for e in gpu_step(number, 1000.0 + 120 * number)]
    found = gradients(written(tmp_path, events, "worker0.pt.trace.json.gz"))
    assert found.times_s == pytest.approx([300e-6] * 3)
    assert found.backward == pytest.approx(2 / 3, abs=1e-3)


def test_a_cpus_gradient_is_from_its_first_operator_to_the_end_of_its_backward_pass(tmp_path: Path) -> None:
    step = [
        annotation("ProfilerStep#4", 0, 500),
        annotation("Optimizer.zero_grad#SGD.zero_grad", 1, 9),
        event("aten::zero_", 2, 5),
        event("aten::linear", 50, 100),
        event("gloo:all_reduce", 200, 150, "user_annotation", _AUTOGRAD),  # beside the backward pass
        event(_MAIN + "AddmmBackward0", 200, 50),
        event(_MAIN + "torch::autograd::AccumulateGrad", 260, 90),
        event("c10d::allreduce_", 360, 20),
        annotation("Optimizer.step#SGD.step", 400, 90),
        event("aten::add_", 410, 60),
        annotation("ProfilerStep#5", 500, 100),  # cut off before its backward pass
        event("aten::linear", 510, 80),
    ]
    assert gradients(written(tmp_path, step)) == ((300e-6,), 0.5)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps of a small model, as a user would profile them."""
    file = tmp_path_factory.mktemp("profiled") / "trace.json"
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples, labels = torch.zeros(32, 64), torch.zeros(32, dtype=torch.long)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=4, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(file)),
    ) as profiler:
        for _ in range(5):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(samples), labels).backward()
            optimizer.step()
            profiler.step()
    return file


def test_a_real_trace_gives_a_time_for_each_step(real: Path) -> None:
    steps = [e for e in json.loads(real.read_text())["traceEvents"] if "ProfilerStep#" in e.get("name", "")]
    found = gradients(real)
    assert len(found.times_s) == 4
    assert all(0 < time < step["dur"] / 1e6 for time, step in zip(found.times_s, steps, strict=True))
    assert 0 < found.backward < 1


def test_a_scenario_takes_times_and_the_backward_pass_from_a_trace(
    command: Lockstep, tmp_path: Path, real: Path
) -> None:
    (tmp_path / "traces").mkdir()
    trace = tmp_path / "traces" / "worker.json"
    trace.write_bytes(real.read_bytes())
    file = tmp_path / "traced.yaml"
    file.write_text(
        SIZES.replace(
            "{distribution: exponential, mean: 20 ms}", "{distribution: empirical, file: traces/worker.json}"
        )
    )
    compute = lockstep.load(file).cluster.compute
    assert compute.backward == gradients(trace).backward
    assert compute.time.times_s == gradients(trace).times_s
    assert lockstep.load(file, ["cluster.compute.backward=0"]).cluster.compute.backward == 0
    fine(command("simulate", file, "--json", "--out", tmp_path / "out"))
    records = lockstep.simulate(lockstep.load(tmp_path / "out" / "scenario.yaml")).records
    drawn = records[records["event"] == "gradient"]
    times = np.array(gradients(trace).times_s)
    assert all(np.isclose(times, took, rtol=0, atol=1e-10).any() for took in drawn["end"] - drawn["start"])


WRONG: dict[str, tuple[Any, str]] = {
    "no steps": ([event("aten::linear", 0, 1)], "the trace has no ProfilerStep#N: profile with a schedule"),
    "no events": ([], "the trace has no ProfilerStep#N"),
    "inference": (
        [annotation("ProfilerStep#1", 0, 9), event("aten::linear", 1, 2)],
        "no step of the trace has a",
    ),
    "not a list": (7, "cannot read 'trace.json'; give a trace of the PyTorch profiler"),
    "not events": (["x"], "cannot read 'trace.json'"),
    "no time": ([{"ph": "X", "name": "ProfilerStep#1"}], "cannot read 'trace.json'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_trace_that_does_not_tell(case: str, command: Lockstep, sizes_only: Path, tmp_path: Path) -> None:
    events, message = WRONG[case]
    written(tmp_path, events)
    time = "cluster.compute.time={distribution: empirical, file: trace.json}"
    ended = command("simulate", sizes_only, "--set", time)
    assert ended.status == 2
    assert message in ended.err
    assert "cluster.compute.time.file" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"{", b"\x1f\x8b\x08", b"[" * 100_000])
def test_a_file_that_is_no_trace(content: bytes, sizes_only: Path, tmp_path: Path) -> None:
    for name in ("bad.json", "bad.json.gz"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(lockstep.ScenarioError, match="give a trace of the PyTorch profiler"):
            lockstep.load(sizes_only, [f"cluster.compute.time={{distribution: empirical, file: {name}}}"])
